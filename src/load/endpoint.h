// What a load generator learns of an endpoint before it sends load, and from its metrics.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "load/http_client.h"

namespace ridge {

struct LoadEndpoint {
  std::string model;
  int max_context = 0;  // prompt and output together; 0: unknown
  // Token ids that the model knows: those that /tokenize gives for load_words(), else all below the
  // vocabulary's size, which Ridge and llama.cpp tell. Empty: prompts must be text.
  std::vector<int> ids;
};
// `model` is taken as it is unless empty. Waits for up to a minute while /health answers 503, as it
// does while the model is loaded. Throws Error where the endpoint does not answer, wants a key, or
// has no such model.
LoadEndpoint probe_endpoint(HttpClient& client, const std::string& model);

// Sums since a Ridge server started, from its /metrics.
struct StepTotals {
  double steps = 0, measured_s = 0;
  double predicted_steps = 0, predicted_s = 0;
  double roof_steps = 0, roof_s = 0;
};
inline constexpr std::array<std::string_view, 3> kLoadPhases{"prefill", "decode", "mixed"};
struct ServerTotals {
  std::array<StepTotals, kLoadPhases.size()> phases;
  double gaps = 0, gap_s = 0;  // between steps
  double drafts = 0, accepted = 0;
  double preemptions = 0;

  ServerTotals operator-(const ServerTotals& before) const;
};
// Nothing where the text has no metrics of Ridge.
std::optional<ServerTotals> parse_server_totals(std::string_view metrics);
std::optional<ServerTotals> read_server_totals(HttpClient& client);

}  // namespace ridge
