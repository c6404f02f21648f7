// Diagnoses from numbers: the statements at the end of the project's list of claims, and the
// answers between "nothing is wrong" and "impossible".
#include "diagnose/diagnose.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "diagnose/json.h"
#include "diagnose/support.h"

namespace ridge {
namespace {

using Q = Quantity;

Request seventy() { return make_request("llama-3-70b", "8xh100-sxm"); }
Request eight() { return make_request("llama-3-8b", "h100-sxm"); }

bool says(const Diagnosis& d, Bearing bearing, const std::string& text) {
  return std::any_of(d.findings.begin(), d.findings.end(), [&](const Finding& f) {
    return f.bearing == bearing && f.text.find(text) != std::string::npos;
  });
}

bool misses(const Diagnosis& d, const std::string& text) {
  return std::any_of(d.missing.begin(), d.missing.end(),
                     [&](const std::string& line) { return line.find(text) != line.npos; });
}

const Lever* lever(const Diagnosis& d, const std::string& start) {
  const auto it = std::find_if(d.levers.begin(), d.levers.end(),
                               [&](const Lever& l) { return l.name.starts_with(start); });
  return it == d.levers.end() ? nullptr : &*it;
}

// The time per token of a run that is exactly as expected.
double expected_itl(Request r, double batch) {
  r.batch = batch;
  return predict(r).tpot_s();
}

// What such a run would show.
Stated as_expected(const Request& r, double batch, double slower = 1) {
  return {{Q::batch, batch}, {Q::itl, slower * expected_itl(r, batch)}};
}

Stated with(Stated values, const Stated& more) {
  values.insert(values.end(), more.begin(), more.end());
  return values;
}

TEST(Diagnose, GpuUtilIsNotFed) {
  // "GPU-Util 95 %, low tok/s": DRAM busy, tensor units idle.
  const Stated counters{{Q::gpu_util, 0.95}, {Q::dram_active, 0.7}, {Q::tensor_active, 0.05}};
  const Diagnosis d = judged(seventy(), with(as_expected(seventy(), 8), counters));
  EXPECT_EQ(d.verdict, Verdict::under_batched);
  EXPECT_EQ(d.wall, Wall::memory);
  EXPECT_TRUE(says(d, Bearing::supports, "only says that some kernel was resident"));
  EXPECT_NE(d.sentence.find("Raise the batch before adding devices"), std::string::npos);
  ASSERT_FALSE(d.levers.empty());
  EXPECT_TRUE(d.levers.front().name.starts_with("batch"));
  // The same where the step is slow as well: memory, not the utilisation, is the evidence.
  const Diagnosis slow = judged(seventy(), with(as_expected(seventy(), 8, 3), counters));
  EXPECT_EQ(slow.wall, Wall::memory);
  EXPECT_FALSE(slow.healthy);
}

TEST(Diagnose, UnderBatchedSeventyBillion) {
  const Diagnosis d = judged(seventy(), {{Q::tokens_per_s, 280}, {Q::gpu_util, 0.38}});
  EXPECT_EQ(d.verdict, Verdict::under_batched);
  // By how much: a step of this model on eight H100s takes at least 140 GB / 8 / 3.35 TB/s =
  // 5.2 ms, so 280 tok/s are at least 1.5 sequences; memory for hundreds is left.
  ASSERT_TRUE(d.run.expected && d.run.expected->effective_batch);
  EXPECT_GE(*d.run.expected->effective_batch, 1.4);
  EXPECT_LE(*d.run.expected->effective_batch, 4);
  EXPECT_GE(d.run.expected->useful_batch, 64);
  EXPECT_GE(d.run.expected->useful_tokens_per_s, 10 * 280);
  EXPECT_TRUE(says(d, Bearing::supports, "idle"));
  // The batch follows from the rate, so the rate is the evidence and the batch is none.
  EXPECT_TRUE(says(d, Bearing::supports, "280 tok/s is what a batch of"));
  EXPECT_TRUE(says(d, Bearing::contradicts, "the batch was not observed"));
  EXPECT_FALSE(says(d, Bearing::supports, "decode at once"));
}

TEST(Diagnose, QuantizationHelpsThroughBytes) {
  const Diagnosis d = judged(seventy(), as_expected(seventy(), 8));
  const Lever* int4 = lever(d, "weights int4");
  const Lever* fp8 = lever(d, "weights fp8");
  ASSERT_TRUE(int4 && fp8);
  EXPECT_GT(int4->gain, 1.2);
  EXPECT_LT(int4->gain, 16 / 4.15);  // never more than the bytes saved, scales counted
  EXPECT_GT(fp8->gain, 1.2);
  EXPECT_LT(fp8->gain, 2);
  EXPECT_NE(fp8->note.find("fewer bytes, not from more FLOP/s"), std::string::npos);
  // The arithmetic used stays: same FLOPs a token, so MFU rises no more than the speed.
  Request narrow = seventy();
  narrow.batch = 8;
  const Prediction wide = predict(narrow);
  narrow.plan.weights = format_from_name("int4");
  EXPECT_DOUBLE_EQ(predict(narrow).decode.flops, wide.decode.flops);
}

TEST(Diagnose, FasterComputeDoesNotSpeedDecode) {
  Request r = eight();
  r.stack = find_stack("ideal");
  const double before = predict(r).decode.roof_s;
  for (Maybe& peak : r.system.device.peak) {
    if (peak) *peak *= 4;
  }
  // Batch 1 lies at 1 FLOP/byte, the ridge at 295: only attention's small share could move.
  EXPECT_NEAR(predict(r).decode.roof_s / before, 1, 1e-3);
  r = eight();
  r.stack = find_stack("ideal");
  for (Level& level : r.system.device.levels) {
    if (level.read_bandwidth) *level.read_bandwidth *= 1.5;
  }
  EXPECT_NEAR(before / predict(r).decode.roof_s, 1.5, 1e-3);
  // Among the levers a card gains at most its bandwidth ratio.
  const Diagnosis d = judged(eight(), as_expected(eight(), 1));
  const Lever* h200 = lever(d, "machine h200");
  ASSERT_TRUE(h200);
  EXPECT_GT(h200->gain, 1.2);
  EXPECT_LE(h200->gain, 4.8 / 3.35);
}

TEST(Diagnose, RooflineCannotSeeLaunchGapsCollectivesOrTheScheduler) {
  const Diagnosis blind = judged(seventy(), as_expected(seventy(), 8, 3));
  // Without counters host and links both stay possible, and what would settle it is asked for.
  EXPECT_FALSE(blind.healthy);
  EXPECT_LT(blind.confidence, 0.6);
  EXPECT_TRUE(misses(blind, "--dram-active"));
  EXPECT_TRUE(misses(blind, "--tensor-active"));
  // Quiet counters are evidence of their own.
  const Diagnosis quiet =
      judged(seventy(),
             with(as_expected(seventy(), 8, 3), {{Q::dram_active, 0.2}, {Q::tensor_active, 0.03}}));
  EXPECT_TRUE(quiet.wall == Wall::launch || quiet.wall == Wall::interconnect);
  // One device has no collectives.
  const Diagnosis single = judged(
      eight(), with(as_expected(eight(), 8, 3), {{Q::dram_active, 0.2}, {Q::tensor_active, 0.03}}));
  EXPECT_EQ(single.verdict, Verdict::host_bound);
  EXPECT_EQ(single.wall, Wall::launch);
  EXPECT_FALSE(says(single, Bearing::contradicts, "collectives"));
  // An idle device with requests waiting: the scheduler or the host holds them back.
  const Diagnosis held =
      judged(seventy(), with(as_expected(seventy(), 8), {{Q::gpu_util, 0.2}, {Q::waiting, 30}}));
  EXPECT_TRUE(held.verdict == Verdict::host_bound || held.verdict == Verdict::admission_limit)
      << verdict_name(held.verdict);
}

TEST(Diagnose, MfuBelowTenPercentIsNormal) {
  const Diagnosis d = judged(seventy(), as_expected(seventy(), 8));
  EXPECT_LT(d.run.expected->mfu, 0.1);
  EXPECT_GT(d.run.expected->mbu, 0.3);
  EXPECT_FALSE(d.run.is_slow());
  EXPECT_TRUE(says(d, Bearing::supports, "is normal for decode"));
  EXPECT_TRUE(says(d, Bearing::supports, "MBU"));
}

TEST(Diagnose, ImpossibleAboveTheRoof) {
  const Request r = eight();
  const double roof = predict(r).roof_tokens_per_s;
  const Diagnosis d = judged(r, {{Q::batch, 1}, {Q::tokens_per_s, roof * 1.2}});
  EXPECT_EQ(d.verdict, Verdict::impossible);
  EXPECT_GT(d.run.expected->share_of_roof, 1);
  EXPECT_NE(d.sentence.find("Impossible"), std::string::npos);
  EXPECT_TRUE(d.levers.empty());
  // At the roof itself it is merely excellent.
  EXPECT_NE(judged(r, {{Q::batch, 1}, {Q::tokens_per_s, roof}}).verdict, Verdict::impossible);
}

TEST(Diagnose, WeightsThatDoNotFitAreImpossibleOrOnTheHost) {
  const Request r = make_request("llama-3-70b", "h100-sxm");  // 141 GB in 80
  const double roof = predict(r).roof_tokens_per_s;
  const Diagnosis fast = judged(r, {{Q::batch, 1}, {Q::tokens_per_s, 0.98 * roof}});
  EXPECT_EQ(fast.verdict, Verdict::impossible);
  EXPECT_EQ(fast.wall, Wall::capacity);
  // 61 GB over PCIe each step: about 1 token/s.
  const Diagnosis slow = judged(r, {{Q::batch, 1}, {Q::tokens_per_s, 0.9}});
  EXPECT_EQ(slow.verdict, Verdict::host_weights);
  EXPECT_EQ(slow.wall, Wall::host_link);
}

TEST(Diagnose, ImpossibleWhereTheCacheDoesNotFit) {
  const Stated seen = as_expected(eight(), 400);  // 400 sequences of 2048 tokens: 107 GB of 80
  const Diagnosis d = judged(eight(), seen);
  EXPECT_EQ(d.verdict, Verdict::impossible);
  EXPECT_EQ(d.wall, Wall::capacity);
  EXPECT_NE(d.sentence.find("batch 400 at context 2048"), std::string::npos);
  // A cache that is seen full holds less than described.
  EXPECT_EQ(judged(eight(), with(seen, {{Q::kv_usage, 0.98}, {Q::waiting, 12}})).verdict,
            Verdict::kv_full);
}

TEST(Diagnose, ContradictionsAreImpossible) {
  // 10 000 tok/s at 28 ms a token are 280 sequences, not eight.
  const Diagnosis d = judged(seventy(), {{Q::batch, 8}, {Q::tokens_per_s, 10000}, {Q::itl, 28e-3}});
  EXPECT_EQ(d.verdict, Verdict::impossible);
  EXPECT_NE(d.sentence.find("280 sequences"), std::string::npos) << d.sentence;
}

TEST(Diagnose, NothingIsWrong) {
  const Diagnosis probe = judged(eight(), as_expected(eight(), 1));
  const Diagnosis d = judged(eight(), as_expected(eight(), probe.run.expected->useful_batch));
  EXPECT_TRUE(d.healthy);
  EXPECT_TRUE(d.verdict == Verdict::memory_bound || d.verdict == Verdict::compute_bound)
      << verdict_name(d.verdict);
  EXPECT_NE(d.sentence.find("Nothing is wrong"), std::string::npos);
  EXPECT_NEAR(d.run.expected->over_expected, 1, 1e-9);
  EXPECT_FALSE(lever(d, "close the gap"));
}

TEST(Diagnose, KvFull) {
  const Stated seen = with(as_expected(eight(), 64), {{Q::kv_usage, 0.98}, {Q::waiting, 12}});
  const Diagnosis d = judged(eight(), seen);
  EXPECT_EQ(d.verdict, Verdict::kv_full);
  EXPECT_EQ(d.wall, Wall::capacity);
  EXPECT_NE(d.sentence.find("fp8 KV"), std::string::npos);
  EXPECT_FALSE(lever(d, "batch "));  // there is no room for one
  // Full without anybody waiting is a well-used cache.
  const Stated calm = with(as_expected(eight(), 64), {{Q::kv_usage, 0.98}, {Q::waiting, 0}});
  EXPECT_NE(judged(eight(), calm).verdict, Verdict::kv_full);
}

TEST(Diagnose, PowerLimitsBusyTensorUnits) {
  const double ttft = predict(eight()).ttft_s();
  const Stated seen{{Q::ttft, 1.6 * ttft}, {Q::tensor_active, 0.8}};
  EXPECT_EQ(judged(eight(), seen).wall, Wall::compute);
  EXPECT_EQ(judged(eight(), with(seen, {{Q::power, 695}, {Q::sm_clock, 1.2e9}})).verdict,
            Verdict::power);
  EXPECT_EQ(judged(eight(), with(seen, {{Q::power, 400}})).wall, Wall::compute);
}

TEST(Diagnose, FirstTokenAlone) {
  const double ttft = predict(eight()).ttft_s();
  const Diagnosis d = judged(eight(), {{Q::ttft, ttft}});
  EXPECT_TRUE(d.healthy);
  EXPECT_NEAR(d.run.expected->over_expected, 1, 1e-9);
  EXPECT_EQ(d.verdict, Verdict::compute_bound);  // 1024 tokens are right of the ridge
  EXPECT_EQ(judged(eight(), {{Q::ttft, 10 * ttft}}).verdict, Verdict::queue_capacity);
  EXPECT_EQ(judged(eight(), {{Q::ttft, predict(eight()).prefill.roof_s / 2}}).verdict,
            Verdict::impossible);
  // Beside a decode observation a late first token is queueing, and does not change the wall.
  const Stated both = as_expected(eight(), 8);
  const Diagnosis late = judged(eight(), with(both, {{Q::ttft, 2}}));
  EXPECT_EQ(late.wall, judged(eight(), both).wall);
  EXPECT_TRUE(says(late, Bearing::contradicts, "queue"));
}

TEST(Diagnose, TwoOfThreeGiveTheThird) {
  const double itl = expected_itl(seventy(), 24);
  EXPECT_EQ(judged(seventy(), {{Q::itl, itl}, {Q::tokens_per_s, 24 / itl}}).run.batch, 24);
  EXPECT_NEAR(*judged(seventy(), {{Q::tokens_per_s, 24 / itl}}).run.batch, 24, 1);
  EXPECT_NEAR(*judged(seventy(), {{Q::tokens_per_s, 24 / itl}, {Q::batch, 24}}).run.step_s, itl,
              1e-9);
}

TEST(Diagnose, GeneralLeversAreRankedAndNameTheNextWall) {
  for (const double batch : {1.0, 16.0, 128.0}) {
    Request r = seventy();
    r.plan.graphs = r.plan.fusion = false;
    const Diagnosis d = judged(r, as_expected(r, batch));
    ASSERT_GE(d.levers.size(), 5u);
    double last = 1e9;
    for (const Lever& l : d.levers) {
      EXPECT_FALSE(l.name.empty());
      EXPECT_FALSE(l.note.empty());
      if (!l.predicted) continue;
      EXPECT_TRUE(std::isfinite(l.gain) && l.gain > 0) << l.name;
      EXPECT_GT(l.tpot_s, 0) << l.name;
      const double faster = d.run.expected->prediction.tpot_s() / l.tpot_s;
      EXPECT_GE(std::max({l.gain, l.ttft_gain, faster}), 1.005) << l.name << " " << batch;
      if (l.targeted) continue;
      EXPECT_LE(l.gain, last);
      last = l.gain;
    }
    for (const char* name : {"CUDA graphs", "kernel fusion", "speculation", "machine "}) {
      EXPECT_TRUE(lever(d, name)) << name;
    }
    // One sequence's cache is 0.4 % of the bytes: half of it gains nothing to speak of.
    EXPECT_EQ(lever(d, "kv fp8") != nullptr, batch > 1) << batch;
  }
}

TEST(Diagnose, ALeversGainIsItsPrediction) {
  const Diagnosis d = judged(eight(), as_expected(eight(), 8));
  Request changed = eight();
  changed.batch = 8;
  const double before = predict(changed).tokens_per_s;
  changed.plan.kv = format_from_name("fp8");
  const Lever* kv = lever(d, "kv fp8");
  ASSERT_TRUE(kv);
  EXPECT_DOUBLE_EQ(kv->gain, predict(changed).tokens_per_s / before);
  EXPECT_EQ(kv->next_wall, predict(changed).decode.wall);
}

TEST(Diagnose, AbsurdNumbersAreRefused) {
  const auto refused = [](Stated values) { EXPECT_THROW(judged(seventy(), values), Error); };
  EXPECT_THROW(judged(seventy(), {}), Error);
  for (const double bad : {0.0, -1.0, 1e300, double(NAN), double(INFINITY)}) {
    for (const Q q : {Q::tokens_per_s, Q::batch, Q::itl, Q::ttft, Q::power}) refused({{q, bad}});
  }
  for (const double bad : {-0.1, 1.5, 95.0, double(NAN)}) {
    for (const Q q : {Q::dram_active, Q::tensor_active, Q::gpu_util, Q::kv_usage}) {
      refused({{Q::itl, 9e-3}, {q, bad}});
    }
  }
  refused({{Q::waiting, -3}});
  refused({{Q::waiting, NAN}});
}

TEST(Diagnose, AnEndpointAsPredictedIsNotSlow) {
  for (const char* stack : {"vllm", "sglang", "trtllm"}) {
    for (const double clients : {4, 16, 64}) {
      Request r = eight();
      r.stack = find_stack(stack);
      r.prompt = 2048;
      r.output = 256;
      r.clients = clients;
      r.context = r.prompt + r.output / 2;
      const EndpointEstimate e = estimate_endpoint(r, endpoint_load(r));
      r.clients.reset();
      const Diagnosis d =
          judged(r, {{Q::batch, clients}, {Q::itl, e.tpot_s}, {Q::output, r.output}});
      EXPECT_FALSE(d.run.is_slow()) << stack << " " << clients << ": " << d.sentence;
      EXPECT_TRUE(says(d, Bearing::supports, "prompts of other requests")) << stack << clients;
    }
  }
}

TEST(Diagnose, FewerDecodingThanSaidIsPointedOut) {
  const double itl = expected_itl(seventy(), 32);
  EXPECT_TRUE(says(judged(seventy(), {{Q::batch, 32}, {Q::itl, itl}, {Q::tokens_per_s, 8 / itl}}),
                   Bearing::contradicts, "only 8 of the 32 sequences decode"));
}

TEST(Diagnose, JsonRoundTrips) {
  const Diagnosis d = judged(seventy(), as_expected(seventy(), 8));
  const Json json = to_json(d);
  EXPECT_EQ(Json::parse(json.dump()), json);
  for (const char* key : {"verdict", "wall", "next_wall", "sentence", "runner_up"}) {
    EXPECT_TRUE(json[key].is_string() || json[key].is_null()) << key;
  }
  EXPECT_EQ(json["levers"].size(), d.levers.size());
  EXPECT_EQ(json["evidence"].size(), d.findings.size());
  EXPECT_EQ(json["prediction"]["decode"]["batch"], 8);
  for (const char* key : {"healthy", "confidence", "observed", "expected", "missing", "files"}) {
    EXPECT_TRUE(json.contains(key)) << key;
  }
}

}  // namespace
}  // namespace ridge
