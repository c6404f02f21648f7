// Diagnoses: the statements at the end of the project's list of claims, and the answers between
// "nothing is wrong" and "impossible".
#include "predict/explain.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/json.h"
#include "predict/json.h"
#include "predict/support.h"

namespace ridge {
namespace {

Request seventy() { return make_request("llama-3-70b", "8xh100-sxm"); }
Request eight() { return make_request("llama-3-8b", "h100-sxm"); }

bool says(const Explanation& x, Bearing bearing, const std::string& text) {
  return std::any_of(x.evidence.begin(), x.evidence.end(), [&](const Evidence& e) {
    return e.bearing == bearing && e.text.find(text) != std::string::npos;
  });
}

const Lever* lever(const Explanation& x, const std::string& start) {
  const auto it = std::find_if(x.levers.begin(), x.levers.end(),
                               [&](const Lever& l) { return l.name.starts_with(start); });
  return it == x.levers.end() ? nullptr : &*it;
}

// What a run would show that is exactly as expected.
Observation as_expected(Request r, double batch) {
  r.batch = batch;
  Observation seen;
  seen.batch = batch;
  seen.itl_s = predict(r).tpot_s();
  return seen;
}

TEST(Explain, GpuUtilIsNotFed) {
  // "GPU-Util 95 %, low tok/s": DRAM busy, tensor units idle.
  Observation seen = as_expected(seventy(), 8);
  seen.gpu_util = 0.95;
  seen.dram_active = 0.7;
  seen.tensor_active = 0.05;
  const Explanation x = explain(seventy(), seen);
  EXPECT_EQ(x.verdict, Verdict::under_batched);
  EXPECT_EQ(x.wall, Wall::memory);
  EXPECT_TRUE(says(x, Bearing::supports, "only says that some kernel was resident"));
  EXPECT_NE(x.sentence.find("Raise the batch before adding devices"), std::string::npos);
  ASSERT_FALSE(x.levers.empty());
  EXPECT_TRUE(x.levers.front().name.starts_with("batch"));
  // The same where the step is slow as well: memory, not the utilisation, is the evidence.
  seen.itl_s = *seen.itl_s * 3;
  const Explanation slow = explain(seventy(), seen);
  EXPECT_EQ(slow.wall, Wall::memory);
  EXPECT_EQ(slow.verdict, Verdict::slow_step);
  EXPECT_NE(slow.sentence.find("the tensor cores wait for it"), std::string::npos);
}

TEST(Explain, UnderBatchedSeventyBillion) {
  Observation seen;
  seen.tokens_per_s = 280;
  seen.gpu_util = 0.38;
  const Explanation x = explain(seventy(), seen);
  EXPECT_EQ(x.verdict, Verdict::under_batched);
  // By how much: a step of this model on eight H100s takes at least 140 GB / 8 / 3.35 TB/s =
  // 5.2 ms, so 280 tok/s are at least 1.5 sequences; memory for hundreds is left.
  ASSERT_TRUE(x.effective_batch);
  EXPECT_GE(*x.effective_batch, 1.4);
  EXPECT_LE(*x.effective_batch, 4);
  EXPECT_GE(x.useful_batch, 64);
  EXPECT_GE(x.useful_tokens_per_s, 10 * 280);
  EXPECT_TRUE(says(x, Bearing::supports, "idle"));
}

TEST(Explain, QuantizationHelpsThroughBytes) {
  const Explanation x = explain(seventy(), as_expected(seventy(), 8));
  const Lever* int4 = lever(x, "weights int4");
  const Lever* fp8 = lever(x, "weights fp8");
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

TEST(Explain, FasterComputeDoesNotSpeedDecode) {
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
  const Explanation x = explain(eight(), as_expected(eight(), 1));
  const Lever* h200 = lever(x, "machine h200");
  ASSERT_TRUE(h200);
  EXPECT_GT(h200->gain, 1.2);
  EXPECT_LE(h200->gain, 4.8 / 3.35);
}

TEST(Explain, RooflineCannotSeeLaunchGapsCollectivesOrTheScheduler) {
  Observation slow = as_expected(seventy(), 8);
  slow.itl_s = *slow.itl_s * 3;
  const Explanation blind = explain(seventy(), slow);
  EXPECT_EQ(blind.verdict, Verdict::slow_step);
  EXPECT_TRUE(blind.wall == Wall::launch || blind.wall == Wall::interconnect);
  // Without counters both stay possible, and what would settle it is asked for.
  EXPECT_TRUE(says(blind, Bearing::contradicts, "collectives"));
  EXPECT_TRUE(says(blind, Bearing::missing, "--dram-active"));
  EXPECT_TRUE(says(blind, Bearing::missing, "--tensor-active"));
  // Quiet counters are evidence of their own.
  slow.dram_active = 0.2;
  slow.tensor_active = 0.03;
  const Explanation quiet = explain(seventy(), slow);
  EXPECT_TRUE(quiet.wall == Wall::launch || quiet.wall == Wall::interconnect);
  EXPECT_TRUE(says(quiet, Bearing::supports, "waits between kernels"));
  // One device has no collectives.
  Observation alone = as_expected(eight(), 8);
  alone.itl_s = *alone.itl_s * 3;
  const Explanation single = explain(eight(), alone);
  EXPECT_EQ(single.wall, Wall::launch);
  EXPECT_FALSE(says(single, Bearing::contradicts, "collectives"));
  // An idle device with requests waiting: the scheduler.
  Observation idle = as_expected(seventy(), 8);
  idle.gpu_util = 0.2;
  idle.waiting = 30;
  const Explanation held = explain(seventy(), idle);
  EXPECT_TRUE(held.verdict == Verdict::starved || held.verdict == Verdict::under_batched);
  EXPECT_TRUE(says(held, Bearing::supports, "scheduler"));
}

TEST(Explain, MfuBelowTenPercentIsNormal) {
  const Explanation x = explain(seventy(), as_expected(seventy(), 8));
  EXPECT_LT(x.mfu, 0.1);
  EXPECT_GT(x.mbu, 0.3);
  EXPECT_NE(x.verdict, Verdict::slow_step);
  EXPECT_TRUE(says(x, Bearing::supports, "is normal for decode"));
  EXPECT_TRUE(says(x, Bearing::supports, "MBU"));
}

TEST(Explain, ImpossibleAboveTheRoof) {
  Request r = eight();
  Observation seen;
  seen.batch = 1;
  seen.tokens_per_s = predict(r).roof_tokens_per_s * 1.2;
  const Explanation x = explain(r, seen);
  EXPECT_EQ(x.verdict, Verdict::impossible);
  EXPECT_GT(x.share_of_roof, 1);
  EXPECT_NE(x.sentence.find("Impossible"), std::string::npos);
  // At the roof itself it is merely excellent.
  seen.tokens_per_s = predict(r).roof_tokens_per_s;
  EXPECT_NE(explain(r, seen).verdict, Verdict::impossible);
}

TEST(Explain, ImpossibleWhereTheWeightsDoNotFit) {
  Observation seen;
  seen.batch = 1;
  seen.tokens_per_s = 20;
  const Explanation x = explain(make_request("llama-3-70b", "h100-sxm"), seen);
  EXPECT_EQ(x.verdict, Verdict::impossible);
  EXPECT_EQ(x.wall, Wall::capacity);
}

TEST(Explain, ImpossibleWhereTheCacheDoesNotFit) {
  Observation seen = as_expected(eight(), 400);  // 400 sequences of 2048 tokens: 107 GB of 80
  const Explanation x = explain(eight(), seen);
  EXPECT_EQ(x.verdict, Verdict::impossible);
  EXPECT_EQ(x.wall, Wall::capacity);
  EXPECT_NE(x.sentence.find("batch 400 at context 2048"), std::string::npos);
  // A cache that is seen full holds less than described.
  seen.kv_usage = 0.98;
  seen.waiting = 12;
  EXPECT_EQ(explain(eight(), seen).verdict, Verdict::full);
}

TEST(Explain, ALargerBatchIsWorthExpectedOverExpected) {
  Observation seen;
  seen.batch = 8;
  seen.tokens_per_s = 280;
  const Explanation x = explain(seventy(), seen);
  const double times = x.useful_tokens_per_s / x.prediction.tokens_per_s;
  EXPECT_NE(
      x.sentence.find(fmt::format("about {:.{}f}x the tokens/s", times, times < 9.95 ? 1 : 0)),
      std::string::npos)
      << x.sentence;
}

TEST(Explain, NothingIsWrong) {
  const Explanation probe = explain(eight(), as_expected(eight(), 1));
  const Explanation x = explain(eight(), as_expected(eight(), probe.useful_batch));
  EXPECT_EQ(x.verdict, Verdict::healthy);
  EXPECT_NE(x.sentence.find("Nothing is wrong"), std::string::npos);
  EXPECT_NEAR(x.over_expected, 1, 1e-9);
  EXPECT_FALSE(lever(x, "close the gap"));
}

TEST(Explain, KvFull) {
  Observation seen = as_expected(eight(), 64);
  seen.kv_usage = 0.98;
  seen.waiting = 12;
  const Explanation x = explain(eight(), seen);
  EXPECT_EQ(x.verdict, Verdict::full);
  EXPECT_EQ(x.wall, Wall::capacity);
  EXPECT_NE(x.sentence.find("fp8 KV"), std::string::npos);
  // Full without anybody waiting is a well-used cache.
  seen.waiting = 0;
  EXPECT_NE(explain(eight(), seen).verdict, Verdict::full);
}

TEST(Explain, PowerLimitsBusyTensorUnits) {
  Observation seen;
  seen.ttft_s = predict(eight()).ttft_s();
  seen.tensor_active = 0.8;
  EXPECT_EQ(explain(eight(), seen).wall, Wall::compute);
  seen.power_w = 695;  // of 700
  EXPECT_EQ(explain(eight(), seen).wall, Wall::power);
  seen.power_w = 400;
  EXPECT_EQ(explain(eight(), seen).wall, Wall::compute);
}

TEST(Explain, FirstTokenAlone) {
  Observation seen;
  seen.ttft_s = predict(eight()).ttft_s();
  const Explanation x = explain(eight(), seen);
  EXPECT_EQ(x.verdict, Verdict::healthy);
  EXPECT_NEAR(x.over_expected, 1, 1e-9);
  EXPECT_EQ(x.wall, Wall::compute);  // 1024 tokens are right of the ridge
  seen.ttft_s = 10 * *seen.ttft_s;
  EXPECT_EQ(explain(eight(), seen).verdict, Verdict::slow_step);
  seen.ttft_s = predict(eight()).prefill.roof_s / 2;
  EXPECT_EQ(explain(eight(), seen).verdict, Verdict::impossible);
  // Beside a decode observation a late first token is queueing, and does not change the wall.
  Observation both = as_expected(eight(), 8);
  const Wall wall = explain(eight(), both).wall;
  both.ttft_s = 2;
  const Explanation late = explain(eight(), both);
  EXPECT_EQ(late.wall, wall);
  EXPECT_TRUE(says(late, Bearing::contradicts, "queue"));
}

TEST(Explain, FirstTokenAloneRanksByItsOwnGain) {
  Observation seen;
  seen.ttft_s = 10 * predict(eight()).ttft_s();
  const Explanation x = explain(eight(), seen);
  const Lever* gap = lever(x, "close the gap");
  ASSERT_TRUE(gap);
  EXPECT_NEAR(gap->ttft_gain, 10, 1e-9);
  EXPECT_EQ(gap->gain, 1);
  for (size_t i = 1; i < x.levers.size(); ++i) {
    EXPECT_GE(x.levers[i - 1].ttft_gain, x.levers[i].ttft_gain);
  }
  EXPECT_FALSE(says(x, Bearing::missing, "--batch"));
}

TEST(Explain, LeversCountBytesFromTheModelsOwnFormat) {
  const Request r = make_request("deepseek-v3", "8xh200");
  const Lever* int4 = nullptr;
  const Explanation x = explain(r, as_expected(r, 4));
  ASSERT_TRUE(int4 = lever(x, "weights int4"));
  EXPECT_NE(int4->note.find("52 % of the weight bytes"), std::string::npos) << int4->note;
}

TEST(Explain, TwoOfThreeGiveTheThird) {
  const Observation full = as_expected(seventy(), 24);
  Observation seen;
  seen.itl_s = full.itl_s;
  seen.tokens_per_s = 24 / *full.itl_s;
  EXPECT_EQ(explain(seventy(), seen).batch, 24);
  EXPECT_FALSE(says(explain(seventy(), seen), Bearing::missing, "--batch"));
  seen.itl_s.reset();
  EXPECT_NEAR(explain(seventy(), seen).batch, 24, 1);  // the batch that yields this rate
  seen.batch = 24;
  EXPECT_NEAR(explain(seventy(), seen).step_s, *full.itl_s, 1e-9);
}

TEST(Explain, LeversAreRankedAndNameTheNextWall) {
  for (const double batch : {1.0, 16.0, 128.0}) {
    Request r = seventy();
    r.plan.graphs = r.plan.fusion = false;
    const Explanation x = explain(r, as_expected(r, batch));
    ASSERT_GE(x.levers.size(), 5u);
    for (size_t i = 0; i < x.levers.size(); ++i) {
      const Lever& l = x.levers[i];
      EXPECT_FALSE(l.name.empty());
      EXPECT_FALSE(l.note.empty());
      EXPECT_TRUE(std::isfinite(l.gain) && l.gain > 0) << l.name;
      EXPECT_GT(l.tpot_s, 0) << l.name;
      EXPECT_FALSE(wall_name(l.next_wall).empty());
      if (i > 0) {
        EXPECT_LE(l.gain, x.levers[i - 1].gain);
      }
    }
    for (const char* name :
         {"CUDA graphs", "kernel fusion", "speculation", "prefix reuse", "machine "}) {
      EXPECT_TRUE(lever(x, name)) << name;
    }
    // Fewer tensor-parallel ranks are listed where they gain something, and only there.
    Request changed = r;
    changed.batch = batch;
    changed.plan.tp /= 2;
    changed.plan.dp *= 2;
    const Prediction p = predict(changed);
    const double gain =
        std::max({p.tokens_per_s / x.prediction.tokens_per_s, x.prediction.tpot_s() / p.tpot_s(),
                  x.prediction.ttft_s() / p.ttft_s()});
    EXPECT_EQ(lever(x, "tp 8 -> 4") != nullptr, p.memory.fits && gain >= 1.005) << batch;
    // One sequence's cache is 0.4 % of the bytes: half of it gains nothing to speak of.
    EXPECT_EQ(lever(x, "kv fp8") != nullptr, batch > 1) << batch;
  }
}

TEST(Explain, ALeverThatGainsNothingIsNotListed) {
  for (const double batch : {1.0, 64.0, 512.0}) {
    const Explanation x = explain(seventy(), as_expected(seventy(), batch));
    for (const Lever& l : x.levers) {
      const double faster = x.prediction.tpot_s() / l.tpot_s;
      EXPECT_GE(std::max({l.gain, l.ttft_gain, faster}), 1.005) << l.name << " " << batch;
    }
  }
}

// Near the useful batch a larger one is not advised.
TEST(Explain, ABatchThatIsLargeEnoughIsNotToBeRaised) {
  const double useful = explain(eight(), as_expected(eight(), 1)).useful_batch;
  Observation seen = as_expected(eight(), useful);
  seen.itl_s = *seen.itl_s * 3;
  EXPECT_EQ(explain(eight(), seen).sentence.find("Raise the batch"), std::string::npos);
}

TEST(Explain, ALeversGainIsItsPrediction) {
  const Request r = eight();
  const Explanation x = explain(r, as_expected(r, 8));
  Request changed = r;
  changed.batch = 8;
  const double before = predict(changed).tokens_per_s;
  changed.plan.kv = format_from_name("fp8");
  const Lever* kv = lever(x, "kv fp8");
  ASSERT_TRUE(kv);
  EXPECT_DOUBLE_EQ(kv->gain, predict(changed).tokens_per_s / before);
  EXPECT_EQ(kv->next_wall, predict(changed).decode.wall);
}

TEST(Explain, AbsurdAndContradictoryNumbersAreRefused) {
  const auto refused = [](auto change) {
    Observation seen;
    seen.tokens_per_s = 280;
    seen.batch = 8;
    change(seen);
    EXPECT_THROW(explain(seventy(), seen), Error);
  };
  EXPECT_THROW(explain(seventy(), {}), Error);
  for (const double bad : {0.0, -1.0, 1e300, double(NAN), double(INFINITY)}) {
    refused([=](Observation& o) { o.tokens_per_s = bad; });
    refused([=](Observation& o) { o.batch = bad; });
    refused([=](Observation& o) { o.itl_s = bad; });
    refused([=](Observation& o) { o.ttft_s = bad; });
    refused([=](Observation& o) { o.power_w = bad; });
  }
  for (const double bad : {-0.1, 1.5, 95.0, double(NAN)}) {
    refused([=](Observation& o) { o.dram_active = bad; });
    refused([=](Observation& o) { o.tensor_active = bad; });
    refused([=](Observation& o) { o.gpu_util = bad; });
    refused([=](Observation& o) { o.kv_usage = bad; });
  }
  refused([](Observation& o) { o.waiting = -3; });
  refused([](Observation& o) { o.waiting = NAN; });
  // 10 000 tok/s at 28 ms a token are 280 sequences, not eight.
  refused([](Observation& o) {
    o.tokens_per_s = 10000;
    o.itl_s = 28e-3;
  });
}

TEST(Explain, AnEndpointAsPredictedIsNotSlow) {
  for (const char* stack : {"vllm", "sglang", "trtllm"}) {
    for (const double clients : {4, 16, 64}) {
      Request r = eight();
      r.stack = find_stack(stack);
      r.prompt = 2048;
      r.output = 256;
      r.clients = clients;
      r.context = r.prompt + r.output / 2;
      const EndpointEstimate e = estimate_endpoint(r, endpoint_load(r));
      Observation seen;
      seen.batch = clients;
      seen.itl_s = e.tpot_s;
      seen.output = r.output;
      r.clients.reset();
      const Explanation x = explain(r, seen);
      EXPECT_NE(x.verdict, Verdict::slow_step) << stack << " " << clients << ": " << x.sentence;
      EXPECT_TRUE(says(x, Bearing::supports, "prompts of other requests")) << stack << clients;
    }
  }
}

TEST(Explain, FewerDecodingThanSaidIsPointedOut) {
  Observation seen = as_expected(seventy(), 32);
  seen.tokens_per_s = 8 / *seen.itl_s;
  EXPECT_TRUE(
      says(explain(seventy(), seen), Bearing::contradicts, "only 8 of the 32 sequences decode"));
}

TEST(Explain, JsonRoundTrips) {
  const Request r = seventy();
  const Explanation x = explain(r, as_expected(r, 8));
  const Json json = to_json(r, x);
  EXPECT_EQ(Json::parse(json.dump()), json);
  for (const char* key : {"verdict", "wall", "next_wall", "sentence"}) {
    EXPECT_TRUE(json[key].is_string()) << key;
  }
  EXPECT_EQ(json["levers"].size(), x.levers.size());
  EXPECT_EQ(json["evidence"].size(), x.evidence.size());
  EXPECT_EQ(json["prediction"]["decode"]["batch"], 8);
}

}  // namespace
}  // namespace ridge
