// What the columns of measured endpoints mean. The rows come from two sources: a public benchmark
// (InferenceX) and runs inside NVIDIA; their columns were filled in differently. How each was read
// is in docs/accuracy.md, Endpoints.
#pragma once

#include <optional>
#include <string>

#include "model/model.h"

namespace ridge {

// One row as it stands in the file. Blank numbers are 0.
struct EndpointRow {
  std::string id, backend, version, model, system, mode, quantization, measured;
  double prompt = 0, output = 0, clients = 0;
  double tp = 0, pp = 0, attention_dp = 0, moe_tp = 0, moe_ep = 0;
  double prefill_workers = 0, decode_workers = 0;
  double decode_tp = 0, decode_dp = 0, decode_moe_tp = 0, decode_moe_ep = 0;
  double ttft_s = 0, tpot_s = 0;

  // Of the public benchmark: all clients start at once and send ten requests each, whose lengths
  // are uniform between 0.8 and 1 of what the columns say.
  bool is_public() const;
  bool disaggregated() const { return mode == "disagg"; }
};

struct EndpointLayout {
  int tp = 1, dp = 1, ep = 1;
};
// Of the devices that decode. nullopt: the columns do not fix it.
std::optional<EndpointLayout> layout_of(const EndpointRow& row);

// How the server was set up, where it shows in the times.
struct ServerSettings {
  double poll = 0, wait = 0;  // see Load
  double budget = 0;          // tokens a step takes; 0: the stack's
  int drafts = 0;             // multi-token prediction, which no column records
  double tokens_per_step = 1;
};
ServerSettings settings_of(const EndpointRow& row, const EndpointLayout& layout);

// Why a row measures something else than its columns say; empty: nothing is known against it.
std::string defect_of(const EndpointRow& row);
// The first token alone: kernels were compiled while the first requests waited.
bool first_token_is_cold(const EndpointRow& row);

}  // namespace ridge
