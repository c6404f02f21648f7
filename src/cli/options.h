// The options that describe a prediction, shared by predict and explain, and how they become
// requests. Every numeric option and every list takes a sweep.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "predict/predict.h"

namespace ridge {

inline constexpr const char* kDefaultModel = "llama-3-8b";
inline constexpr const char* kDefaultMachine = "h100-sxm";

struct RequestOptions {
  std::string model = kDefaultModel, machine = kDefaultMachine, stack = "typical";
  std::string batch = "1", context = "2048", prompt = "1024";
  std::string tp, pp, dp, ep = "1";  // empty: all devices of the machine by tensor parallelism
  std::string weights, kv, activations;
  std::string chunk = "0", prefix_hit = "0", speculate = "0", acceptance = "0.7";
  std::string expert_skew = "0", offload = "0", price, draft;
  double reserve = 0;
  bool no_flash = false, no_fusion = false, no_graphs = false, no_paging = false;
  bool no_continuous = false;
};

void add_request_options(CLI::App& command, RequestOptions& options);

// A parameter that takes several values, and each request's value of it.
struct SweepAxis {
  std::string name;  // "batch"
  std::vector<std::string> labels;
};

struct RequestGrid {
  std::vector<SweepAxis> axes;          // only those with more than one value
  std::vector<Request> requests;        // the product, first axis slowest
  std::vector<std::vector<size_t>> at;  // per request: index into each axis
};

// Throws Error for unknown names, bad numbers and more than 100 000 points.
RequestGrid make_requests(const RequestOptions& options);

}  // namespace ridge
