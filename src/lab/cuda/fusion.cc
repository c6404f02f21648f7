// Memory-bound operators one by one and in one pass, and the engine's MLP with its activation and
// residual inside the GEMMs and as passes of their own.
#ifdef RIDGE_HAS_CUDA

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/units.h"
#include "lab/cuda/elementwise.h"
#include "lab/cuda/gemm.h"
#include "lab/cuda/gpu_point.h"
#include "lab/cuda/on_cuda.h"

namespace ridge {
namespace {

struct FusedPair {
  LabSeries apart, fused;
  bool equal = true;

  double gain(size_t i) const { return apart.points[i].measured / fused.points[i].measured; }
};

// k operators x/2 + 1 over one array, in place: 8 bytes an element for each pass.
FusedPair time_gpu_chains(Lab& lab, LabGpu& gpu, const std::vector<int>& lengths) {
  FusedPair pair{{"operators one by one", {}}, {"operators in one pass", {}}};
  LabFloats floats(gpu, size_t{1} << (lab.quick() ? 22 : 28), 1);
  const double n = double(floats.count());
  for (const int k : lengths) {
    lab.step(fmt::format("{} elementwise operators", k));
    const auto by_one = [&] {
      for (int i = 0; i < k; ++i) floats.chain(0, 0, 1);
    };
    const auto at_once = [&] { floats.chain(0, 0, k); };
    floats.fill();
    by_one();
    const uint32_t sum = floats.sum_of(0);
    floats.fill();
    at_once();
    pair.equal = pair.equal && sum == floats.sum_of(0);
    const LabBand one = gpu_pass_seconds(lab, 8 * n, 2 * n);
    const LabBand all = gpu_pass_seconds(lab, 8 * n, 2.0 * k * n);
    const LabBand each{k * one.low, k * one.expected, k * one.high};
    const auto ms = [](double seconds) { return to_ms(seconds); };
    pair.apart.points.push_back(measure_on_gpu(lab, gpu, k, to_ms(each), by_one, ms));
    pair.fused.points.push_back(measure_on_gpu(lab, gpu, k, to_ms(all), at_once, ms));
  }
  gpu.wait();
  return pair;
}

// x += silu(norm(x) y) over rows of 4096: four operators that differ, 40 bytes an element one by
// one and 12 in one pass.
FusedPair time_gpu_block(Lab& lab, LabGpu& gpu) {
  FusedPair pair{{"norm, product, activation, residual, one by one", {}},
                 {"norm, product, activation, residual in one pass", {}}};
  lab.step("norm, product, activation and residual");
  LabFloats floats(gpu, size_t{1} << (lab.quick() ? 20 : 26), 3);
  const double n = double(floats.count());
  const auto apart = [&] {
    floats.norm(2, 0);
    floats.multiply(2, 1);
    floats.silu(2);
    floats.add(0, 0, 2);
  };
  const auto fused = [&] { floats.norm_multiply_silu_add(0, 1); };
  apart();
  const size_t places[] = {5, floats.count() / 2 + 77, floats.count() - 1};
  float expected[3];
  for (size_t i = 0; i < 3; ++i) expected[i] = floats.element(0, places[i]);
  floats.fill();
  fused();
  for (size_t i = 0; i < 3; ++i) {
    // A product that is added may be rounded once or twice.
    const float value = floats.element(0, places[i]);
    pair.equal = pair.equal && std::abs(value - expected[i]) <= 4e-7f * std::abs(expected[i]);
  }
  const LabBand two = gpu_pass_seconds(lab, 12 * n, n), one = gpu_pass_seconds(lab, 8 * n, n);
  const auto ms = [](double seconds) { return to_ms(seconds); };
  pair.apart.points.push_back(measure_on_gpu(lab, gpu, 4, to_ms(one + two + one + two), apart, ms));
  pair.fused.points.push_back(measure_on_gpu(lab, gpu, 4, to_ms(two), fused, ms));
  gpu.wait();
  return pair;
}

LabBand gpu_gemm_seconds(Lab& lab, const MatmulShape& shape) {
  Op op;
  op.name = "mlp";
  op.work = matmul_work(shape);
  op.shape = shape;
  return expected_seconds(lab, op, op.work.device_bytes());
}

// Fused: two GEMMs. Apart: the first writes floats for gate and up, a pass makes bf16 of them, the
// second writes floats that another pass adds.
LabBand gpu_mlp_seconds(Lab& lab, double hidden, double inner, double tokens, bool fused) {
  LabBand band =
      gpu_gemm_seconds(lab, {tokens, hidden, 2 * inner, 16, 2, fused ? 2.0 : 4.0, fused ? 0.5 : 1.0,
                             DType::bf16}) +
      gpu_gemm_seconds(lab, {tokens, inner, hidden, 16, 2, fused ? 8.0 : 4.0, 1, DType::bf16});
  if (!fused) {
    band = band + gpu_pass_seconds(lab, tokens * inner * 10, 6 * tokens * inner) +
           gpu_pass_seconds(lab, tokens * hidden * 12, tokens * hidden);
  }
  band.high = 1.5 * band.expected;  // the stack's GEMMs run in larger steps
  return to_ms(band);
}

FusedPair time_gpu_mlp(Lab& lab, LabGpu& gpu, const std::vector<int>& counts) {
  FusedPair pair{{"MLP, passes apart (x: tokens)", {}}, {"MLP, fused (x: tokens)", {}}};
  const int hidden = lab.quick() ? 1024 : 4096, inner = lab.quick() ? 4096 : 14336;
  LabMlpOnGpu mlp(gpu, hidden, inner, counts.back());
  for (const int tokens : counts) {
    lab.step(fmt::format("MLP of {} tokens", tokens));
    mlp.reset();
    mlp.fused(tokens);
    const std::vector<float> a = mlp.output(tokens);
    mlp.reset();
    mlp.apart(tokens);
    const std::vector<float> b = mlp.output(tokens);
    double difference = 0, size = 0;
    for (size_t i = 0; i < a.size(); ++i) {
      difference += std::pow(double(a[i]) - b[i], 2);
      size += double(b[i]) * b[i];
    }
    // The activation is rounded to bf16 in both, from sums that may differ in their last bit.
    pair.equal = pair.equal && size > 0 && std::sqrt(difference / size) < 2e-3;
    const auto ms = [](double seconds) { return to_ms(seconds); };
    pair.apart.points.push_back(measure_on_gpu(
        lab, gpu, tokens, gpu_mlp_seconds(lab, hidden, inner, tokens, false),
        [&] { mlp.apart(tokens); }, ms));
    pair.fused.points.push_back(measure_on_gpu(
        lab, gpu, tokens, gpu_mlp_seconds(lab, hidden, inner, tokens, true),
        [&] { mlp.fused(tokens); }, ms));
  }
  gpu.wait();
  return pair;
}

}  // namespace

LabResult fusion_on_cuda(Lab& lab) {
  LabGpu gpu;
  const std::vector<int> lengths =
      lab.quick() ? std::vector<int>{1, 4} : std::vector<int>{1, 2, 4, 8};
  const std::vector<int> tokens =
      lab.quick() ? std::vector<int>{1, 8} : std::vector<int>{1, 16, 128, 1024};
  const FusedPair chains = time_gpu_chains(lab, gpu, lengths);
  const FusedPair block = time_gpu_block(lab, gpu);
  const FusedPair mlp = time_gpu_mlp(lab, gpu, tokens);
  LabResult result;
  result.x = {"operators, or tokens", true, 0, 0};
  result.y = {"ms", true, 0, 0};
  result.series = {chains.apart, chains.fused, block.apart, block.fused, mlp.apart, mlp.fused};
  result.checks.push_back({"elementwise operators: bit for bit equal", chains.equal});
  result.checks.push_back(
      {"norm, product, activation and residual: equal to rounding, 4e-7", block.equal});
  result.checks.push_back({"MLP: equal to the rounding of its activation, 2e-3", mlp.equal});
  const size_t last = lengths.size() - 1, most = tokens.size() - 1;
  decide(result, chains.gain(last) > 0.6 * lengths[last],
         {&chains.apart.points[last], &chains.fused.points[last]});
  result.sentence = fmt::format(
      "{} elementwise operators in one pass run {:.1f}x faster than one by one; norm, product, "
      "activation and residual {:.1f}x (their bytes: 3.3x). An MLP gains {:.2f}x at {} token and "
      "{:.2f}x at {} tokens from its activation and residual in the GEMMs: there the weights, or "
      "the FLOPs, are the time.",
      lengths[last], chains.gain(last), block.gain(0), mlp.gain(0), tokens[0], mlp.gain(most),
      tokens[most]);
  result.notes.push_back(
      "The operators work in place on 1 GB of floats (quick: 17 MB, in the L2): 8 bytes an element "
      "for each pass. Norm, elementwise product, activation and residual: rows of 4096, 268 MB an "
      "array. The MLP is that of Llama-3-8B in bf16, without its norm.");
  result.notes.push_back(gpu.conditions());
  return result;
}

}  // namespace ridge

#endif
