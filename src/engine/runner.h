// The seam between generation and a backend: a step takes tokens of some sequences and gives
// logits.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/cuda/layout/weight_format.h"
#include "engine/kv/pages.h"
#include "engine/sampling/top_logits.h"
#include "engine/tokenizer/tokenizer.h"
#include "engine/weights/weights.h"
#include "step/step.h"

namespace ridge {

class Profile;

// int8, fp8: a scale per token and head. The CPU keeps no fp8, CUDA no f32.
enum class KvStorage : uint8_t { f32, f16, bf16, int8, fp8 };

struct RunnerOptions {
  int threads = 0;                                              // CPU; 0: one per core
  cuda::WeightFormat device_format = cuda::WeightFormat::bf16;  // CUDA; the CPU keeps the file's
  KvStorage kv = KvStorage::f16;
  int page_tokens = 16;
  int cache_tokens = 4096;  // all sequences together
  int max_tokens = 512;     // of one step: longer prompts come in chunks
};

// One sequence's part of a step: `tokens` after `past` cached ones, in pages that cover both.
struct Slice {
  std::span<const Token> tokens;
  int past = 0;
  std::span<const int> pages;
  int logits = 1;  // rows wanted: of the last `logits` tokens
};

class Runner {
 public:
  virtual ~Runner() = default;
  virtual const Weights& weights() const = 0;
  virtual const RunnerOptions& options() const = 0;
  // Runs all layers for all slices (at most max_tokens tokens together) and writes their keys and
  // values. Of the wanted rows, in the order of the slices, one may then ask until the next run:
  // what is asked for is valid as long, or until the same is asked for again.
  // On the CPU each token's result depends only on its own sequence: not on the batch, the chunking
  // or the threads. On CUDA equal steps give equal bits, and so does every step of at most 8
  // tokens (of models with a decode kernel) whatever else is in it. Larger steps take their
  // products in tiles of 32, 64, 128 or 256 tokens, cut between the SMs by how many there are:
  // there sums may round otherwise in a step of another size.
  virtual void run(std::span<const Slice> batch) = 0;
  virtual std::span<const float> logits() = 0;  // [rows][vocab]
  // A device finds these where the logits are: the likeliest token of each row, the lower of
  // equals, and what each row is asked.
  virtual std::span<const Token> likeliest();
  virtual std::span<const TopLogits> top_logits(std::span<const TopLogitsRequest> requests);
  std::span<const float> step(std::span<const Slice> batch) {
    run(batch);
    return logits();
  }
  virtual PagePool& pool() = 0;
  virtual void set_profile(Profile* profile) = 0;  // null: none
  virtual void fill_cache(uint64_t seed) = 0;      // random keys and values, for benchmarks
  virtual std::string device() const = 0;          // "CPU, 2 threads, AVX-512"
  // Bytes/s at which plain reads stream these very weights, by one pass over them now; 0: not
  // known. Memory is not equally fast everywhere and always: other guests of a host, pages, caches.
  virtual double read_rate() { return 0; }
  virtual double repacked_bytes() const = 0;  // copied into another layout on loading
  virtual Plan plan() const = 0;              // what the predictor must assume to describe this run

 private:
  std::vector<Token> likeliest_;
  std::vector<TopLogits> top_logits_;
};

std::unique_ptr<Runner> make_cpu_runner(Weights weights, const RunnerOptions& options);
// Without a device, or in a build without CUDA, throws Error with the reason.
std::unique_ptr<Runner> make_cuda_runner(Weights weights, const RunnerOptions& options);

}  // namespace ridge
