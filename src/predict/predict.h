// From a model, a machine and a plan to what a person asks: how long to the first token, how long
// per token, how many fit, and which wall decides.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "machine/machine.h"
#include "model/model.h"
#include "predict/endpoint.h"
#include "predict/memory.h"
#include "roofline/roofline.h"

namespace ridge {

// One way to spread a model over devices, see Plan.
struct ParallelLayout {
  int tp = 1, pp = 1, dp = 1, ep = 1;
  double tokens_per_s = 0;
};

struct Request {
  std::shared_ptr<const Model> model;
  System system;
  Stack stack;
  bool default_stack = false;  // nobody named the stack: it is the machine's default
  Plan plan;
  double batch = 1;       // sequences decoding at once, over all replicas
  double context = 2048;  // tokens in each sequence's KV cache when the decode step runs
  double prompt = 1024;   // tokens of the prompt whose prefill gives the time to first token
  std::optional<double> clients;         // requests in the system at once: ask for an endpoint
  std::optional<double> rate;            // requests/s that arrive at random; gives the clients
  double output = 1024;                  // tokens of an answer
  std::shared_ptr<const Model> draft;    // for speculation; without it drafting is free (n-gram)
  std::optional<double> price_per_hour;  // dollars per device; else the machine's own
  std::vector<ParallelLayout> layouts;   // where none was given: those that fit, best first
  int idle = 0;  // devices of the machine that the default layout leaves out; paid all the same
};

// All executions of one operator in a phase, per device.
struct OpEstimate {
  std::string name;
  bool prefill = false;
  OpKind kind = OpKind::matmul;
  DType math = DType::bf16;
  double count = 0;  // executions
  double flops = 0, bytes = 0;
  double weight_bytes = 0, kv_bytes = 0, act_bytes = 0;  // these three are `bytes`
  double chip_bytes = 0;                                 // cache to compute units, see Work
  double roof_s = 0, expected_s = 0;
  Wall wall = Wall::memory;  // of the longest
  WallTimes on{};            // expected seconds on each ceiling

  double intensity() const { return bytes > 0 ? flops / bytes : 0; }
};

struct Prediction {
  StepEstimate prefill;  // one prompt, all its chunks
  StepEstimate decode;   // one step of the batch (with speculation: drafts and verification)
  std::optional<StepEstimate> mixed;  // a decode step that carries a prompt chunk
  // The endpoint in steady state, for request.clients; none where it does not fit the memory.
  std::optional<EndpointEstimate> endpoint;
  MemoryFit memory;
  std::vector<OpEstimate> ops;  // of the prefill's last step and of the decode step
  double tokens_per_step = 1;   // per sequence, above 1 with speculation
  double batch_efficiency = 1;  // share of batch slots in use (static batching wastes some)
  double draft_s = 0;           // expected seconds of drafting within a decode step
  DType math = DType::bf16;
  double tokens_per_s = 0;  // expected, all devices
  double roof_tokens_per_s = 0;
  std::optional<double> dollars_per_mtok;  // output tokens; of the endpoint where there is one
  std::optional<double> joules_per_token;  // at the board's power limit
  std::vector<std::string> notes;

  double ttft_s() const { return prefill.expected_s; }
  // Mean time between a user's tokens.
  double tpot_s() const { return decode.expected_s / tokens_per_step; }
};

// The load of a request that asks for an endpoint.
Load endpoint_load(const Request& request);

// Throws Error for numbers out of range and for layouts that the model or the machine does not
// allow.
void check_request(const Request& request);

// Throws Error for plans and numbers that cannot be.
Prediction predict(const Request& request);

// Many requests on all cores, in order. `done` counts up as they finish (for progress).
std::vector<Prediction> predict_all(std::span<const Request> requests,
                                    std::atomic<size_t>* done = nullptr);

// The draft model of a plan that speculates, cut as the model is; none where drafting is free.
std::optional<Rank> draft_rank(const Request& request);
// Its passes of one step.
StepEstimate draft_passes(const Request& request, const Rank& draft, const Ceilings& ceilings,
                          double batch, double context);

}  // namespace ridge
