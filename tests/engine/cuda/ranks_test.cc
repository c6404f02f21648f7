// Ranks on CUDA against one rank. Each test runs in a program of its own (a threadsafe death test):
// ranks are forked before CUDA is first used. Skipped where no device is (ctest label gpu).
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cmath>
#include <cstring>
#include <random>

#include "engine/cuda/families.h"
#include "engine/generate/generate.h"
#include "engine/ranks/cut_weights.h"
#include "engine/ranks/start_ranks.h"
#include "ranks/shared_memory.h"

#ifdef RIDGE_HAS_CUDA
#include <cuda_runtime.h>

#include "base/error.h"
#include "engine/cuda/ranks/device_all_reduce.h"
#include "engine/cuda/ranks/nccl_library.h"
#endif

namespace ridge {
namespace {

constexpr int kNoDeviceExit = 77;

RunnerOptions ranked_options() {
  RunnerOptions options;
  options.kv = KvStorage::bf16;
  options.cache_tokens = 1024;
  options.max_sequences = 8;
  options.max_logit_rows = 160;
  return options;
}

// Logits of every token of three sequences side by side, then of one more token of each. With
// `pipeline` then of 480 tokens, which stages take in two micro-batches.
std::vector<float> ranked_logits(Runner& runner, bool pipeline) {
  const int vocab = runner.weights().architecture.vocab;
  PagePool pool = pool_of(runner);
  std::vector<KvSequence> sequences;
  std::vector<std::vector<Token>> prompts;
  StepOf step(runner);
  for (int s = 0; s < 3; ++s) {
    sequences.emplace_back(pool);
    prompts.push_back(prompt(5 + 19 * s, s, vocab));
  }
  for (size_t s = 0; s < 3; ++s) step.add(sequences[s], prompts[s], int(prompts[s].size()));
  std::vector<float> all = step.logits();
  const std::vector<Token> next = {7};
  for (KvSequence& sequence : sequences) step.add(sequence, next, 1);
  const std::vector<float> more = step.logits();
  all.insert(all.end(), more.begin(), more.end());
  if (!pipeline) return all;
  const std::vector<Token> longer = prompt(240, 11, vocab);
  const std::span<const Token> half = std::span(longer).first(120);
  step.add(sequences[0], half, 50);
  step.add(sequences[1], half, 50);
  step.add(sequences[2], longer, 50);
  const std::vector<float> last = step.logits();
  all.insert(all.end(), last.begin(), last.end());
  return all;
}

std::vector<Token> ranked_tokens(Runner& runner, double temperature) {
  PagePool pool = pool_of(runner);
  KvSequence sequence(pool);
  GenerateOptions options;
  options.max_tokens = 24;
  options.ignore_end = true;
  options.sampler.temperature = temperature;
  options.sampler.top_k = temperature > 0 ? 20 : 0;
  const int vocab = runner.weights().architecture.vocab;
  return generate(runner, sequence, prompt(17, 3, vocab), options, {}).tokens;
}

// 0: equal; prints what is not. Ends the program's other ranks.
int compare_ranks(const DeviceFamily& family, const RankGrid& grid) {
  const Config config(family.config);
  try {
    check_cut(config.weights(), grid);
    std::shared_ptr<RankLinks> links =
        start_ranks({make_cuda_runner, grid, std::chrono::seconds(60), [&] {
                       return LazyWeights{config.weights(), {}};
                     }});
    const auto ranked =
        lead(std::move(links), make_cuda_runner, {config.weights(), {}}, ranked_options());
    const auto alone = make_cuda_runner(config.weights(), ranked_options());
    const bool pipeline = grid.pp > 1;
    const std::vector<float> expected = ranked_logits(*alone, pipeline);
    const std::vector<float> got = ranked_logits(*ranked, pipeline);
    double error = 0, norm = 0;
    for (size_t i = 0; i < expected.size(); ++i) {
      const double difference = double(got.at(i)) - double(expected[i]);
      error += difference * difference;
      norm += double(expected[i]) * double(expected[i]);
    }
    // Activations round to bf16 after sums in another order.
    const double layers = alone->weights().architecture.layer_count();
    const double bound = std::sqrt(layers + 1) / 256, relative = std::sqrt(error / norm);
    std::fprintf(stderr, "relative difference %.2e of at most %.2e\n", relative, bound);
    if (!(relative <= bound)) return 1;
    if (ranked_tokens(*ranked, 0).size() != 24) return 2;
    if (ranked_tokens(*ranked, 0.8) != ranked_tokens(*ranked, 0.8)) return 3;
    return 0;
  } catch (const Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return says_no_device(error.what()) ? kNoDeviceExit : 4;
  }
}

struct RankedCase {
  const char* name;
  const char* family;
  RankGrid grid;
};

// The exit code of `work`, run in a program of its own.
#define EXIT_CODE_OF(work)                                     \
  [&] {                                                        \
    GTEST_FLAG_SET(death_test_style, "threadsafe");            \
    int code = -1;                                             \
    EXPECT_EXIT(                                               \
        std::exit(work),                                       \
        [&](int status) {                                      \
          code = WIFEXITED(status) ? WEXITSTATUS(status) : -1; \
          return code == 0 || code == kNoDeviceExit;           \
        },                                                     \
        "");                                                   \
    return code;                                               \
  }()

class GpuRanks : public testing::TestWithParam<RankedCase> {};

TEST_P(GpuRanks, GiveTheLogitsOfOne) {
  if (EXIT_CODE_OF(compare_ranks(family_of(GetParam().family), GetParam().grid)) == kNoDeviceExit) {
    GTEST_SKIP() << "no CUDA device";
  }
}

INSTANTIATE_TEST_SUITE_P(
    Gpu, GpuRanks,
    testing::Values(RankedCase{"llama_tp2", "llama", {.tp = 2}},
                    RankedCase{"llama_tp4", "llama", {.tp = 4}},
                    RankedCase{"llama_pp2", "llama", {.pp = 2}},
                    RankedCase{"llama_tp2_pp2", "llama", {.tp = 2, .pp = 2}},
                    RankedCase{"mistral_tp2", "mistral", {.tp = 2}},
                    RankedCase{"qwen2_tp4", "qwen2", {.tp = 4}},
                    RankedCase{"qwen3_tp2", "qwen3", {.tp = 2}},
                    RankedCase{"gemma2_tp2", "gemma2", {.tp = 2}},
                    RankedCase{"gemma3_tp2", "gemma3", {.tp = 2}},
                    RankedCase{"gemma3_pp2", "gemma3", {.pp = 2}},
                    RankedCase{"mixtral_tp2", "mixtral", {.tp = 2}},
                    RankedCase{"mixtral_ep2", "mixtral", {.tp = 2, .whole_experts = true}},
                    RankedCase{"qwen3_moe_tp2", "qwen3_moe", {.tp = 2}},
                    RankedCase{"qwen3_moe_ep4", "qwen3_moe", {.tp = 4, .whole_experts = true}},
                    RankedCase{"phi3_tp2", "phi3", {.tp = 2}},
                    RankedCase{"glm4_tp2_pp2", "glm4", {.tp = 2, .pp = 2}},
                    RankedCase{"gpt_oss_tp4", "gpt_oss", {.tp = 4}},
                    RankedCase{"gpt_oss_pp2", "gpt_oss", {.pp = 2}},
                    RankedCase{"gpt_oss_ep2", "gpt_oss", {.tp = 2, .whole_experts = true}}),
    [](const auto& instance) { return std::string(instance.param.name); });

#ifdef RIDGE_HAS_CUDA

float value_of(int rank, size_t i, int turn) {
  return std::sin(float(i % 1009) * 0.37f + float(rank) * 1.7f + float(turn));
}

// One rank: sums of several lengths, each many times, bit for bit in the order of the ranks.
int check_sums(cuda::DeviceAllReduce& sums, int ranks, int rank, size_t longest) {
  cudaStream_t stream = nullptr;
  cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
  float* device = nullptr;
  if (cudaMalloc(&device, longest * sizeof(float)) != cudaSuccess) return 2;
  int turn = 0;
  for (const size_t count : {size_t{4}, size_t{1000}, size_t{4096}, size_t{65536}, longest}) {
    for (int repeat = 0; repeat < (count > 100'000 ? 2 : 8); ++repeat, ++turn) {
      std::vector<float> values(count), expected(count);
      for (size_t i = 0; i < count; ++i) {
        values[i] = value_of(rank, i, turn);
        expected[i] = value_of(0, i, turn);
        for (int r = 1; r < ranks; ++r) expected[i] += value_of(r, i, turn);
      }
      cudaMemcpyAsync(device, values.data(), count * 4, cudaMemcpyHostToDevice, stream);
      sums.queue(stream, device, count);
      cudaMemcpyAsync(values.data(), device, count * 4, cudaMemcpyDeviceToHost, stream);
      if (cudaStreamSynchronize(stream) != cudaSuccess) return 3;
      if (std::memcmp(values.data(), expected.data(), count * 4) != 0) return 4;
      if (!sums.failure().empty()) return 5;
    }
  }
  return 0;
}

enum class SumKind : uint8_t { direct, host, nccl };

int run_sum_rank(SumKind kind, Communicator& world) {
  constexpr size_t kLongest = (size_t{5} << 20) + 8;  // more than a region holds
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) return kNoDeviceExit;
  if (kind == SumKind::nccl && world.size() > devices) return kNoDeviceExit;
  cudaSetDevice(world.rank() % devices);
  std::string why;
  const std::unique_ptr<cuda::DeviceAllReduce> sums =
      kind == SumKind::direct ? cuda::make_direct_all_reduce(world, kLongest, world.deadline(), why)
      : kind == SumKind::host ? cuda::make_host_all_reduce(world, kLongest)
                              : cuda::make_nccl_all_reduce(world, world.deadline(), why);
  if (!sums) {
    std::fprintf(stderr, "%s\n", why.c_str());
    return kind == SumKind::nccl ? kNoDeviceExit : 6;
  }
  const int failed = check_sums(*sums, world.size(), world.rank(), kLongest);
  world.barrier();
  return failed;
}

// Every rank a process; the exit code of one that failed.
template <typename Run>
int check_ranks(int ranks, const Run& run) {
  const std::shared_ptr<SharedRegion> region = make_shared_region(ranks);
  std::vector<pid_t> others;
  for (int rank = 1; rank < ranks; ++rank) {
    const pid_t process = fork();
    if (process == 0) _exit(run(*join_shared_region(region, rank)));
    others.push_back(process);
  }
  int worst = run(*join_shared_region(region, 0));
  for (const pid_t process : others) {
    int status = 0;
    waitpid(process, &status, 0);
    const int code = WIFEXITED(status) ? WEXITSTATUS(status) : 9;
    if (code != 0) worst = code;
  }
  return worst;
}

void expect_sums(SumKind kind, int ranks) {
  const auto run = [kind](Communicator& world) { return run_sum_rank(kind, world); };
  if (EXIT_CODE_OF(check_ranks(ranks, run)) == kNoDeviceExit) {
    GTEST_SKIP() << "no CUDA device, or no NCCL, or fewer devices than its ranks";
  }
}
TEST(GpuAllReduce, DirectSumsOfTwoAreTheHosts) { expect_sums(SumKind::direct, 2); }
TEST(GpuAllReduce, DirectSumsOfFourAreTheHosts) { expect_sums(SumKind::direct, 4); }
TEST(GpuAllReduce, SumsThroughTheHost) { expect_sums(SumKind::host, 2); }
TEST(GpuAllReduce, NcclWithOneRank) { expect_sums(SumKind::nccl, 1); }
TEST(GpuAllReduce, NcclSumsOfTwoAreTheHosts) { expect_sums(SumKind::nccl, 2); }

// One of two ranks joins, and the other never does.
int join_alone(Communicator&) {
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) return kNoDeviceExit;
  cudaSetDevice(0);
  try {
    const cuda::NcclLibrary& library = cuda::nccl_library();
    const cuda::NcclId id = library.new_id();
    const auto start = std::chrono::steady_clock::now();
    try {
      library.join(id, 0, 2, {std::chrono::seconds(1)});
    } catch (const Error& error) {
      std::fprintf(stderr, "%s\n", error.what());
      const auto took = std::chrono::steady_clock::now() - start;
      return took < std::chrono::seconds(60) ? 0 : 3;
    }
    return 4;
  } catch (const Error&) {
    return kNoDeviceExit;  // no NCCL
  }
}

TEST(GpuAllReduce, JoiningNcclEndsAtItsDeadline) {
  if (EXIT_CODE_OF(check_ranks(1, join_alone)) == kNoDeviceExit) {
    GTEST_SKIP() << "no CUDA device, or no NCCL";
  }
}

#endif

}  // namespace
}  // namespace ridge
