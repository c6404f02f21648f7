// What must hold for every model, machine and plan.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "base/error.h"
#include "base/json.h"
#include "predict/json.h"
#include "predict/support.h"

namespace ridge {
namespace {

// The most ranks of a node that cut the heads evenly.
Request fitted(const std::string& model, const std::string& system, double batch = 1,
               double context = 2048, const std::string& stack = "typical") {
  Request r = make_request(model, system, batch, context, stack);
  int heads = 0;
  for (const LayerGroup& g : r.model->groups) {
    heads = std::max({heads, g.layer.mixer.heads, g.layer.mixer.value_heads});
  }
  while (r.plan.tp > 1 && heads % r.plan.tp != 0) --r.plan.tp;
  return r;
}

void expect_ordered(const StepEstimate& s) {
  constexpr double kRounding = 1 + 1e-12;
  EXPECT_GT(s.roof_s, 0);
  EXPECT_LE(s.roof_s, s.low_s * kRounding);
  EXPECT_LE(s.low_s, s.expected_s * kRounding);
  EXPECT_LE(s.expected_s, s.high_s * kRounding);
  EXPECT_TRUE(std::isfinite(s.high_s));
  EXPECT_GT(s.flops, 0);
  EXPECT_GT(s.bytes, 0);
  EXPECT_NE(s.wall, s.next_wall);
}

void expect_sane(const Prediction& p) {
  expect_ordered(p.prefill);
  expect_ordered(p.decode);
  if (p.mixed) expect_ordered(*p.mixed);
  for (const double value :
       {p.tokens_per_s, p.roof_tokens_per_s, p.ttft_s(), p.tpot_s(), p.memory.used()}) {
    EXPECT_TRUE(std::isfinite(value) && value > 0) << value;
  }
  EXPECT_LE(p.tokens_per_s, p.roof_tokens_per_s * (1 + 1e-12));
  // The operators are the phases: their sum is the step, less the host's own time.
  double roof = 0, flops = 0, bytes = 0;
  for (const OpEstimate& op : p.ops) {
    if (op.prefill) continue;
    roof += op.roof_s;
    flops += op.flops;
    bytes += op.bytes;
  }
  if (p.draft_s == 0) {
    EXPECT_NEAR(roof, p.decode.roof_s, 1e-9 * roof);
    EXPECT_NEAR(flops, p.decode.flops, 1e-9 * flops);
    EXPECT_NEAR(bytes, p.decode.bytes, 1e-9 * bytes);
  }
}

bool streams_from_cache(const Prediction& p) {
  return std::any_of(p.notes.begin(), p.notes.end(), [](const std::string& note) {
    return note.find("working set fits") != std::string::npos;
  });
}

TEST(Properties, ThroughputRoofNeverFallsWithBatchWhileMemoryLasts) {
  for (const std::string& model : builtin_model_names()) {
    for (const char* machine : {"h100-sxm", "8xh200", "a100-sxm-80gb", "8xmi300x"}) {
      Request r = fitted(model, machine);
      double last = 0;
      for (double batch = 1; batch <= 1024; batch *= 2) {
        r.batch = batch;
        const Prediction p = predict(r);
        if (!p.memory.fits) break;
        if (streams_from_cache(p)) continue;  // a tiny model that outgrows the cache does slow down
        EXPECT_GE(p.roof_tokens_per_s, last * (1 - 1e-9))
            << model << " on " << machine << " at " << batch;
        last = p.roof_tokens_per_s;
      }
    }
  }
}

TEST(Properties, EveryCombinationOfParallelismIsOrdered) {
  for (const char* model : {"llama-3-70b", "mixtral-8x7b", "deepseek-v3", "qwen3-next-80b-a3b"}) {
    const bool moe = std::string(model) != "llama-3-70b";
    for (const int tp : {1, 2, 8}) {
      for (const int pp : {1, 2, 4}) {
        for (const int dp : {1, 2, 8}) {
          for (const int ep : {1, 2, 8}) {
            Request r = make_request(model, "32x8xh200");
            r.plan.tp = tp;
            r.plan.pp = pp;
            r.plan.dp = dp;
            r.plan.ep = ep;
            if (ep > 1 && (!moe || tp * dp % ep != 0)) {
              EXPECT_THROW(predict(r), Error);
              continue;
            }
            SCOPED_TRACE(testing::Message()
                         << model << " tp " << tp << " pp " << pp << " dp " << dp << " ep " << ep);
            double last = 0;
            for (const double batch : {1.0, 16.0, 256.0}) {
              r.batch = batch;
              const Prediction p = predict(r);
              expect_sane(p);
              EXPECT_GE(p.roof_tokens_per_s, last * (1 - 1e-9));
              last = p.roof_tokens_per_s;
            }
          }
        }
      }
    }
  }
}

TEST(Properties, TechniquesKeepTheOrder) {
  for (const char* model : {"llama-3-8b", "deepseek-v3.2", "gemma-3-27b", "nemotron-h-8b"}) {
    for (int bits = 0; bits < 64; ++bits) {
      Request r = make_request(model, "8xh200", 8, 4096);
      r.plan.flash = bits & 1;
      r.plan.fusion = bits & 2;
      r.plan.graphs = bits & 4;
      r.plan.paging = r.plan.continuous = bits & 8;
      r.plan.chunk = bits & 16 ? 256 : 0;
      r.plan.prefix_hit = bits & 16 ? 0.5 : 0;
      r.plan.speculate = bits & 32 ? 3 : 0;
      r.plan.offload = bits & 32 ? 0.1 : 0;
      SCOPED_TRACE(testing::Message() << model << ' ' << bits);
      expect_sane(predict(r));
    }
  }
}

TEST(Properties, MemoryLimitsAreExact) {
  Plan plain, unpaged, replicas, staged;
  unpaged.paging = false;
  unpaged.reserve = 3000;
  replicas.dp = 2;
  staged.pp = 2;
  for (const char* model : {"llama-3-8b", "gemma-3-12b", "nemotron-h-8b", "qwen2.5-7b"}) {
    for (const char* machine : {"2xh100-sxm", "2xa100-sxm-40gb", "2xl40s"}) {
      for (const Plan& plan : {plain, unpaged, replicas, staged}) {
        Request r = make_request(model, machine, 3, 1777);
        r.plan = plan;
        SCOPED_TRACE(testing::Message() << model << machine << plan.dp << plan.pp << plan.paging);
        const MemoryFit m = predict(r).memory;
        ASSERT_GT(m.max_batch, 0);
        const auto fits = [&](double batch, double context) {
          Request other = r;
          other.batch = batch;
          other.context = context;
          return predict(other).memory.fits;
        };
        EXPECT_TRUE(fits(m.max_batch, r.context));
        EXPECT_FALSE(fits(m.max_batch + 1, r.context));
        ASSERT_GT(m.max_context, 0);
        EXPECT_TRUE(fits(r.batch, m.max_context));
        if (m.max_context < double(r.model->max_context)) {
          EXPECT_FALSE(fits(r.batch, m.max_context + 1));
        }
      }
    }
  }
}

TEST(Properties, WhatDoesNotFitSaysCapacity) {
  const Prediction p = predict(make_request("llama-3-70b", "h100-sxm"));
  EXPECT_FALSE(p.memory.fits);
  EXPECT_EQ(p.decode.wall, Wall::capacity);
  EXPECT_EQ(p.prefill.wall, Wall::capacity);
  EXPECT_EQ(p.memory.max_batch, 0);
  EXPECT_EQ(p.memory.max_context, 0);
  EXPECT_LT(p.memory.left(), 0);
}

TEST(Properties, EveryMachinePredicts) {
  int predicted = 0;
  for (const Machine& machine : all_machines()) {
    if (!machine.memory().read_bandwidth) continue;
    SCOPED_TRACE(machine.name);
    Request r = make_request("llama-3-8b", "h100-sxm", 4);
    r.system = System{machine, 1, 1};
    expect_sane(predict(r));
    ++predicted;
  }
  EXPECT_GE(predicted, 40);
}

TEST(Properties, EveryModelPredicts) {
  for (const std::string& model : builtin_model_names()) {
    SCOPED_TRACE(model);
    for (const double batch : {1.0, 64.0}) expect_sane(predict(fitted(model, "8xh200", batch)));
  }
}

TEST(Properties, NothingIsFasterWithoutGraphs) {
  for (const Machine& machine : all_machines()) {
    if (machine.kind != MachineKind::gpu) continue;
    for (const char* stack : {"typical", "vllm", "trtllm"}) {
      for (const double batch : {1.0, 64.0}) {
        Request r = make_request("llama-3.2-1b", "h100-sxm", batch, 2048, stack);
        r.system = System{machine, 1, 1};
        const Prediction graphs = predict(r);
        r.plan.graphs = false;
        const Prediction eager = predict(r);
        SCOPED_TRACE(machine.name + ' ' + stack);
        EXPECT_GE(eager.decode.expected_s, graphs.decode.expected_s);
        EXPECT_GE(eager.prefill.expected_s, graphs.prefill.expected_s);
      }
    }
  }
}

TEST(Properties, LongerContextsAndPromptsNeverGetFaster) {
  for (const char* model : {"llama-3-8b", "gemma-3-27b", "deepseek-v3.2", "qwen3-next-80b-a3b"}) {
    double step = 0, first = 0;
    for (double tokens = 32; tokens <= 131072; tokens *= 4) {
      Request r = make_request(model, "8xh200", 8, tokens);
      r.prompt = tokens;
      const Prediction p = predict(r);
      EXPECT_GE(p.decode.roof_s, step * (1 - 1e-12)) << model << tokens;
      EXPECT_GE(p.prefill.roof_s, first * (1 - 1e-12)) << model << tokens;
      step = p.decode.roof_s;
      first = p.prefill.roof_s;
    }
  }
}

constexpr const char* kServers[] = {"typical", "vllm", "sglang", "trtllm"};

TEST(Properties, MoreOfThePromptInThePrefixCacheIsNeverSlower) {
  for (const char* stack : kServers) {
    for (const char* model : {"llama-3-8b", "gemma-3-27b", "mixtral-8x7b", "deepseek-v3.2"}) {
      for (const char* system : {"8xh100-sxm", "8xgb200", "8xl40s"}) {
        Request r = fitted(model, system, 1, 8192, stack);
        r.prompt = 8192;
        double last = INFINITY;
        for (const double hit : {0.0, 0.9, 0.99, 0.999}) {
          r.plan.prefix_hit = hit;
          const double ttft = predict(r).ttft_s();
          EXPECT_LE(ttft, last) << stack << ' ' << model << ' ' << system << " hit " << hit;
          last = ttft;
        }
      }
    }
  }
}

double attention_s(const Prediction& p, OpKind kind) {
  double sum = 0;
  for (const OpEstimate& op : p.ops) sum += op.kind == kind ? op.expected_s : 0;
  return sum;
}

// A chunk alone pays its launches and reads the weights. On top come the pairs with what was there
// before, which are those of the whole prompt, in tiles of 128 queries that a short chunk does not
// fill, and one more pass over K and V, at most that of a decode step. (MLA is left out: it expands
// the cached tokens again for each chunk.)
TEST(Properties, ChunksCostTheirLaunchesAndReadsAndNoMore) {
  for (const char* stack : kServers) {
    for (const char* model : {"llama-3-8b", "gemma-3-27b", "mixtral-8x7b"}) {
      for (const char* system : {"h100-sxm", "gb200"}) {
        Request r = fitted(model, system, 1, 8192, stack);
        r.prompt = 8192;
        const Prediction whole = predict(r);
        for (const double chunk : {2048.0, 512.0, 256.0, 64.0}) {
          r.plan.chunk = chunk;
          const double ttft = predict(r).ttft_s();
          Request alone = r;
          alone.prompt = chunk;
          const double chunks = 8192 / chunk, alone_s = chunks * predict(alone).ttft_s();
          const double pairs_s = attention_s(whole, OpKind::attention_prefill);
          const double pass_s = attention_s(whole, OpKind::attention_decode);
          SCOPED_TRACE(testing::Message()
                       << stack << ' ' << model << ' ' << system << ' ' << chunk);
          EXPECT_LE(ttft, alone_s + 1.1 * std::max(1.0, 128 / chunk) * pairs_s + chunks * pass_s);
          EXPECT_GE(ttft, 0.9 * alone_s);  // all but the last chunk leave out the output layer
        }
      }
    }
  }
}

TEST(Properties, FewerBytesNeverSlowTheRoof) {
  for (const char* model : {"llama-3-8b", "mixtral-8x7b", "qwen2.5-32b"}) {
    for (const double batch : {1.0, 32.0}) {
      Request r = make_request(model, "2xh100-sxm", batch, 8192);
      const double wide = predict(r).decode.roof_s;
      r.plan.kv = format_from_name("fp8");
      const double kv = predict(r).decode.roof_s;
      r.plan.weights = format_from_name("fp8");
      const double both = predict(r).decode.roof_s;
      EXPECT_LT(kv, wide);
      EXPECT_LT(both, kv);
    }
  }
}

TEST(Properties, OffloadIsBoundByTheHostLink) {
  Request r = make_request("llama-3-70b", "h100-sxm");
  r.plan.offload = 1;
  const Prediction p = predict(r);
  // 140 GB of layers and head over 63 GB/s: more than two seconds a step.
  EXPECT_EQ(p.decode.wall, Wall::host_link);
  EXPECT_GT(p.decode.roof_s, 2);
  EXPECT_TRUE(p.memory.fits);
}

TEST(Properties, SpeculationGainsWhileMemoryBoundAndDraftsCost) {
  Request r = make_request("llama-3-70b", "8xh100-sxm");
  const double plain = predict(r).tokens_per_s;
  r.plan.speculate = 4;
  const Prediction free_drafts = predict(r);
  EXPECT_GT(free_drafts.tokens_per_s, 1.5 * plain);
  r.draft = std::make_shared<const Model>(find_model("llama-3-8b"));
  const Prediction drafted = predict(r);
  EXPECT_GT(drafted.draft_s, 0);
  EXPECT_LT(drafted.tokens_per_s, free_drafts.tokens_per_s);
  EXPECT_NEAR(drafted.decode.expected_s - drafted.draft_s, free_drafts.decode.expected_s,
              1e-9 * drafted.decode.expected_s);
}

TEST(Properties, AbsurdRequestsAreRefused) {
  const auto refused = [](auto change) {
    Request r = make_request("llama-3-8b", "h100-sxm");
    change(r);
    EXPECT_THROW(predict(r), Error);
  };
  for (const double bad : {0.0, -1.0, 1e300, double(NAN), double(INFINITY)}) {
    refused([=](Request& r) { r.batch = bad; });
    refused([=](Request& r) { r.context = bad; });
    refused([=](Request& r) { r.prompt = bad; });
  }
  for (const double bad : {-0.1, 1.1, double(NAN)}) {
    refused([=](Request& r) { r.plan.prefix_hit = bad; });
    refused([=](Request& r) { r.plan.acceptance = bad; });
    refused([=](Request& r) { r.plan.offload = bad; });
  }
  refused([](Request& r) { r.plan.tp = 2; });                  // one device
  refused([](Request& r) { r.plan.tp = r.plan.pp = 65536; });  // the product wraps to zero
  refused([](Request& r) { r.plan.speculate = 1000; });
  refused([](Request& r) { r.plan.expert_skew = 100; });
  refused([](Request& r) {
    r.prompt = 1e9;
    r.plan.chunk = 1;
  });
  refused([](Request& r) {
    r.prompt = 1e9;
    r.clients = 1;
  });
  refused([](Request& r) {
    r.clients = 1;
    r.plan.continuous = false;
  });
}

TEST(Properties, SweepsOnAllCoresKeepOrderAndErrors) {
  std::vector<Request> requests;
  for (int i = 1; i <= 50; ++i) requests.push_back(make_request("llama-3-8b", "h100-sxm", i));
  std::atomic<size_t> done = 0;
  const std::vector<Prediction> all = predict_all(requests, &done);
  ASSERT_EQ(all.size(), 50u);
  EXPECT_EQ(done, 50u);
  for (size_t i = 0; i < all.size(); ++i) {
    EXPECT_EQ(all[i].tokens_per_s, predict(requests[i]).tokens_per_s);
  }
  requests[20].batch = -1;
  EXPECT_THROW(predict_all(requests), Error);
}

constexpr const char* kWalls[] = {"compute",   "memory",   "launch", "interconnect",
                                  "host-link", "capacity", "power"};

void expect_wall(const Json& value) {
  ASSERT_TRUE(value.is_string());
  EXPECT_NE(std::find(std::begin(kWalls), std::end(kWalls), value.get<std::string>()),
            std::end(kWalls))
      << value;
}

void expect_numbers(const Json& object, std::initializer_list<const char*> keys) {
  for (const char* key : keys) {
    ASSERT_TRUE(object.contains(key)) << key;
    EXPECT_TRUE(object[key].is_number()) << key << " is " << object[key];
  }
}

TEST(PredictionJson, RoundTripsWithEveryDocumentedField) {
  Request r = make_request("llama-3-70b", "8xh100-sxm", 32, 4096);
  r.plan.weights = r.plan.kv = format_from_name("fp8");
  for (const double chunk : {0.0, 512.0}) {
    r.plan.chunk = chunk;
    const Json json = to_json(r, predict(r));
    const Json again = Json::parse(json.dump());
    EXPECT_EQ(again, json);
    EXPECT_NO_THROW(parse_json(json.dump(2), "prediction"));  // our own bounds hold too
    for (const char* key : {"model", "machine", "stack"}) EXPECT_TRUE(again[key].is_string());
    EXPECT_EQ(again["model"], "llama-3-70b");
    EXPECT_EQ(again["machine"], "8xh100-sxm");
    for (const char* phase : {"prefill", "decode"}) {
      const Json& p = again[phase];
      expect_numbers(p, {"roof_s", "expected_s", "low_s", "high_s", "flops", "bytes", "intensity",
                         "mfu", "mbu"});
      expect_wall(p["wall"]);
      expect_wall(p["next_wall"]);
    }
    expect_numbers(again["decode"], {"batch", "context", "tokens_per_s"});
    EXPECT_EQ(again["decode"]["batch"], 32);
    EXPECT_EQ(again["decode"]["context"], 4096);
    expect_numbers(again["memory"],
                   {"weights_bytes", "kv_bytes", "activation_bytes", "overhead_bytes",
                    "reserved_bytes", "capacity_bytes", "max_batch", "max_context"});
    EXPECT_TRUE(again["memory"]["fits"].is_boolean());
    ASSERT_TRUE(again["ops"].is_array());
    ASSERT_GT(again["ops"].size(), 10u);
    for (const Json& op : again["ops"]) {
      EXPECT_TRUE(op["name"].is_string());
      expect_numbers(op, {"count", "flops", "bytes", "intensity", "roof_s", "expected_s"});
      expect_wall(op["wall"]);
    }
    EXPECT_EQ(again["mixed"].is_null(), chunk == 0);
  }
}

TEST(PredictionJson, UnknownIsNullNeverZero) {
  Request r = make_request("llama-3-8b", "h100-sxm");
  for (Level& level : r.system.device.levels) {
    if (level.name == r.system.device.memory().name) level.capacity.reset();
  }
  r.system.device.power.reset();
  r.system.device.price_per_hour.reset();
  const Json json = to_json(r, predict(r));
  EXPECT_TRUE(json["memory"]["capacity_bytes"].is_null());
  EXPECT_TRUE(json["memory"]["max_batch"].is_null());
  EXPECT_TRUE(json["joules_per_token"].is_null());
  EXPECT_TRUE(json["dollars_per_mtok"].is_null());
}

TEST(PredictionJson, UnknownPeakGivesNoMfu) {
  Request r = make_request("llama-3-8b", "h100-sxm");
  r.system.device.peak.fill(std::nullopt);
  const Json json = to_json(r, predict(r));
  EXPECT_TRUE(json["decode"]["mfu"].is_null());
  EXPECT_TRUE(json["decode"]["mbu"].is_number());
}

// Without a rate arithmetic would be free, and a prompt as fast as reading the weights once.
TEST(Prediction, AnUnknownPeakIsNotAnInfiniteOne) {
  for (const char* machine : {"h100-sxm", "m4-max", "tpu-v5e"}) {
    Request r = make_request("llama-3-8b", machine, 1, 2048, "ideal");
    r.prompt = 4096;
    const Prediction published = predict(r);
    r.system.device.peak.fill(std::nullopt);
    const Prediction assumed = predict(r);
    EXPECT_GT(assumed.prefill.roof_s, 2 * assumed.decode.roof_s) << machine;
    EXPECT_GE(assumed.prefill.roof_s, published.prefill.roof_s) << machine;
    const Ceilings c = make_ceilings(r.system, r.plan, r.stack);
    for (int i = 0; i < kDTypeCount; ++i) EXPECT_GT(c.flop_s[i], 0) << machine;
    EXPECT_GT(c.vector_s, 0) << machine;
    EXPECT_FALSE(c.notes.empty());
  }
}

TEST(Prediction, MoneyAndEnergyFollowThroughput) {
  Request r = make_request("llama-3-8b", "2xh100-sxm");
  r.price_per_hour = 3;
  const Prediction p = predict(r);
  ASSERT_TRUE(p.dollars_per_mtok && p.joules_per_token);
  EXPECT_DOUBLE_EQ(*p.dollars_per_mtok, 2 * 3.0 / 3600 / p.tokens_per_s * 1e6);
  EXPECT_DOUBLE_EQ(*p.joules_per_token, 2 * 700 / p.tokens_per_s);
}

TEST(Prediction, AnEndpointsTokensAreWhatIsPaid) {
  Request r = make_request("llama-3-8b", "2xh100-sxm");
  r.price_per_hour = 3;
  r.clients = 32;
  const Prediction p = predict(r);
  ASSERT_TRUE(p.endpoint && p.dollars_per_mtok && p.joules_per_token);
  EXPECT_GT(p.endpoint->tokens_per_s, 2 * p.tokens_per_s);
  EXPECT_DOUBLE_EQ(*p.dollars_per_mtok, 2 * 3.0 / 3600 / p.endpoint->tokens_per_s * 1e6);
  EXPECT_DOUBLE_EQ(*p.joules_per_token, 2 * 700 / p.endpoint->tokens_per_s);
}

TEST(Prediction, AnEndpointThatDoesNotFitPromisesNothing) {
  Request r = make_request("llama-3-70b", "h100-sxm");
  r.clients = 4;
  const Prediction p = predict(r);
  EXPECT_FALSE(p.endpoint);
  EXPECT_FALSE(p.joules_per_token);
  ASSERT_FALSE(p.notes.empty());
  EXPECT_NE(p.notes.back().find("no endpoint"), std::string::npos);
}

TEST(Prediction, AnEndpointSpeculates) {
  Request r = make_request("llama-3.1-70b", "4xh200", 1, 2048, "vllm");
  r.clients = 4;
  const auto rate = [&] { return predict(r).endpoint->tokens_per_s; };
  const double plain = rate();
  r.plan.speculate = 3;
  const double free = rate();
  r.draft = std::make_shared<const Model>(find_model("llama-3.2-1b"));
  const double drafted = rate();
  EXPECT_GT(drafted, plain);
  EXPECT_GT(free, drafted);
  EXPECT_LT(free, tokens_per_step(r.plan) * plain);
}

TEST(Prediction, ADraftModelTakesMemory) {
  Request r = make_request("llama-3.1-70b", "4xh200");
  r.plan.speculate = 3;
  const MemoryFit alone = predict(r).memory;
  r.draft = std::make_shared<const Model>(find_model("llama-3.2-1b"));
  const MemoryFit both = predict(r).memory;
  const Rank draft = make_rank(*r.draft, r.plan);
  EXPECT_DOUBLE_EQ(both.weights, alone.weights + draft.weight_bytes);
  EXPECT_DOUBLE_EQ(both.kv, alone.kv + sequence_bytes(draft, r.context));
  EXPECT_LT(both.max_batch, alone.max_batch);
}

TEST(Prediction, AStackAwayFromHomeSaysSo) {
  const auto extrapolated = [](const char* machine, const char* stack) {
    const Prediction p = predict(make_request("llama-3-8b", machine, 1, 2048, stack));
    return std::any_of(p.notes.begin(), p.notes.end(), [](const std::string& note) {
      return note.find("extrapolated") != std::string::npos;
    });
  };
  EXPECT_FALSE(extrapolated("h100-sxm", "ridge-cuda"));
  EXPECT_TRUE(extrapolated("2xh100-sxm", "ridge-cuda"));
  EXPECT_TRUE(extrapolated("a100-sxm-80gb", "ridge-cuda"));
  EXPECT_TRUE(extrapolated("h100-sxm", "ridge"));
  EXPECT_FALSE(extrapolated("b200", "vllm"));
  EXPECT_TRUE(extrapolated("mi300x", "vllm"));
  EXPECT_FALSE(extrapolated("mi300x", "typical"));
}

TEST(Prediction, StaticBatchesWasteSlots) {
  Request r = make_request("llama-3-8b", "h100-sxm", 4);
  const double continuous = predict(r).tokens_per_s;
  r.plan.continuous = false;
  // Mean over expected maximum of four exponential lengths: 1 / (1 + 1/2 + 1/3 + 1/4).
  EXPECT_NEAR(predict(r).tokens_per_s / continuous, 12 / 25.0, 1e-12);
}

}  // namespace
}  // namespace ridge
