#include "validate/endpoint_score.h"

#include <tuple>

#include "base/error.h"
#include "validate/endpoints.h"
#include "validate/rows.h"

namespace ridge {
namespace {

constexpr double kFewClients = 4;

// The 80 % band of held-out endpoints (docs/accuracy.md).
constexpr Band kTokenBand{0.87, 1.16}, kFirstBand{0.69, 1.3}, kLoadedBand{0.75, 1.41};

using Key = std::tuple<std::string, std::string, std::string, std::string, bool>;

void score(const Endpoint& e, std::map<Key, Rows>& groups) {
  const EndpointEstimate times = expected_times(e);
  Endpoint ideal = e;
  ideal.request.stack = Stack{};
  const EndpointEstimate roof = closed_form(ideal, HostCosts{});
  const bool apart = !e.defect.empty();
  const auto add = [&](const std::string& op, bool defective, double measured, double time,
                       double roof_time, const Band& band) {
    groups[{op, e.gpu, e.framework, e.dtype, defective}].add(measured, time, roof_time, band);
  };
  const std::string token = e.disaggregated ? "e2e_tpot_disaggregated" : "e2e_tpot";
  add(token, apart, e.tpot_s, times.tpot_s, roof.tpot_s, kTokenBand);
  if (e.disaggregated) return;
  if (e.load.clients <= kFewClients) {
    add("e2e_ttft", apart || e.cold, e.ttft_s, times.ttft_s, roof.ttft_s, kFirstBand);
    return;
  }
  // Under load the first token depends on how the client sends.
  const std::string first = e.known_client ? "e2e_ttft_loaded" : "e2e_ttft_loaded_unknown_client";
  add(first, apart || e.cold, e.ttft_s, times.ttft_s, roof.ttft_s, kLoadedBand);
}

}  // namespace

void score_endpoints(const std::string& folder, Scoreboard& board,
                     const std::function<void(const std::string&)>& complain) {
  std::map<Key, Rows> groups;
  size_t skipped = 0;
  for (const std::string& path : find_endpoint_files(folder)) {
    std::erase(board.ignored, path);
    try {
      for (const Endpoint& e : read_endpoints(path, skipped, complain)) score(e, groups);
    } catch (const Error& error) {
      complain(error.what());
    }
  }
  if (skipped > 0) {
    complain(fmt::format("{}: {} endpoints not scored: their columns do not fix the layout", folder,
                         skipped));
  }
  for (const auto& [key, rows] : groups) {
    ScoreGroup group;
    std::tie(group.op, group.gpu, group.framework, group.dtype, group.defective) = key;
    group.stats = stats_of(rows);
    group.strata.push_back({"all", group.stats});
    add_weighted((group.defective ? board.apart : board.totals)[group.op], group.stats);
    board.groups.push_back(std::move(group));
  }
}

}  // namespace ridge
