// What the files of a case say: numbers with their source, the setup of the run, and what kernels
// did. Readers write this; nothing here judges.
#pragma once

#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "diagnose/kernel_profile.h"
#include "diagnose/quantity.h"

namespace ridge {

// How far a number can be trusted. Where two sources differ, the higher one is used.
enum class Trust : uint8_t {
  lifetime,  // an average since the server started: idle hours count
  instant,   // a gauge, read once
  window,    // over a known window: two snapshots, a client's run, many samples
  stated,    // typed by the person who asks
};
const char* trust_name(Trust trust);

struct Observed {
  Quantity quantity;
  double value = 0;
  Trust trust = Trust::window;
  double window_s = 0;  // 0: not known
  std::string origin;   // the metric, column or field: "vllm:num_requests_running"
  size_t file = 0;      // index into Evidence::files; the reader leaves it 0
};

// No service has more engines, ranks or replicas; a file that says so is misread.
inline constexpr size_t kMostEngines = 65'536;

// How the run is set up, where a file says so. Empty: it does not.
struct RunSetup {
  std::string engine;   // "vllm", "sglang", "trtllm", "tgi", "llama.cpp", "ridge", ...
  std::string version;  // of the engine
  std::string model;    // as the engine names it: "meta-llama/Llama-3.1-8B-Instruct"
  std::string device;   // as the driver names it: "NVIDIA H100 80GB HBM3"
  std::optional<int> devices, tp, pp, dp, ep;
  std::string weights;  // a format that format_from_name() knows: "fp8", "int4", "q4_k_m"
  std::string kv;
  std::optional<bool> eager;           // CUDA graphs are off
  std::optional<bool> prefix_caching;  // false: switched off
  std::optional<double> offloaded;     // share of the weights that stays in host memory
  double weight_bytes = 0;             // of the model file; 0: not known
};

// One file, or several snapshots of one endpoint that make a window.
struct EvidenceFile {
  std::string path;
  std::string kind;    // "vLLM metrics (v1)", "PyTorch trace", ...
  std::string window;  // in words: "30 s between two snapshots", "since the server's start, 3 h"
  RunSetup setup;
  std::vector<Observed> observed;
  std::optional<KernelProfile> profile;
  std::vector<std::string> notes;    // what was skipped or doubtful, each naming the place
  std::vector<std::string> unknown;  // metrics of the engine that Ridge does not know

  // A value of a file that cannot be is dropped with a note; what a person types is judged later.
  void add(Quantity quantity, double value, Trust trust, std::string origin, double window_s = 0) {
    if (trust != Trust::stated && !(value >= 0 && std::isfinite(value))) {
      notes.push_back(origin + " has no usable value");
      return;
    }
    observed.push_back({quantity, value, trust, window_s, std::move(origin), 0});
  }
};

struct Evidence {
  std::vector<EvidenceFile> files;
};

}  // namespace ridge
