// What a person asks, in the words of the command line, and how it becomes requests. The command
// line, the HTTP API and the report all read their options here, so they cannot differ.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "predict/predict.h"

namespace ridge {

inline constexpr const char* kDefaultModel = "llama-3-8b";
inline constexpr const char* kDefaultMachine = "h100-sxm";

// What is derived from the other options where nothing else is said: the stack is the machine's
// default; the batch is 1, or what an endpoint runs at once; the prompt is as long as the context
// where that is given, else 1024; the context is 2048 or the prompt, or an endpoint's prompt and
// half its answer.
inline constexpr const char* kAuto = "auto";

// Every numeric option takes a sweep ("1,2,4..256"), every name a list.
struct RequestOptions {
  std::string model = kDefaultModel, machine = kDefaultMachine, stack = kAuto;
  std::string batch = kAuto, context = kAuto, prompt = kAuto;
  std::string clients, rate, output = "1024";
  std::string tp, pp, dp, ep;  // no tp, pp and dp: see choose_layout
  std::string weights, kv, activations;
  std::string chunk = "0", prefix_hit = "0", speculate = "0", acceptance = "0.7";
  std::string expert_skew = "0", offload = "0", reserve = "0", price, draft;
  bool no_flash = false, no_fusion = false, no_graphs = false, no_paging = false;
  bool no_continuous = false;
};

// One option: its long name without dashes, and where its value goes. Exactly one of `value` and
// `flag` is set.
struct RequestOption {
  const char* name;
  const char* letter;  // "m"; "" where there is no short form
  const char* group;
  const char* help;
  std::string RequestOptions::*value = nullptr;
  bool RequestOptions::*flag = nullptr;
};
std::span<const RequestOption> request_options();

// What a name may stand for. A server takes names only: a path would let anyone who can reach it
// probe its files.
enum class Sources : uint8_t { names_and_files, names_only };

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

inline constexpr size_t kMaxSweepPoints = 100000;

// Throws Error for unknown names, bad numbers, more than `max_points` points, and more than
// `max_layouts` points for which the layout on several devices is searched.
RequestGrid make_requests(const RequestOptions& options, Sources sources = Sources::names_and_files,
                          size_t max_points = kMaxSweepPoints,
                          size_t max_layouts = kMaxSweepPoints);

// The same where only one point makes sense; throws Error naming the option that has several.
Request make_request(const RequestOptions& options, Sources sources = Sources::names_and_files);

// A machine or model by name, within what `sources` allows. Throw Error.
System find_system(std::string_view name, Sources sources);
Model find_model(std::string_view name, Sources sources);

}  // namespace ridge
