// Ridge's own endpoint under conditions that the test provokes, diagnosed from its metrics alone.
#include "diagnose/paced_engine.h"

namespace ridge {
namespace {

// From a start in which the load settles, until some time has passed and some requests have ended.
std::vector<MetricsPage> window_of(PacedEndpoint& endpoint) {
  endpoint.run_for(0.15);
  std::vector<MetricsPage> pages{endpoint.scrape()};
  const int before = endpoint.ended();
  endpoint.run_for(0.4);
  for (int i = 0; i < 1000 && endpoint.ended() < before + 4; ++i) endpoint.run_for(0.01);
  pages.push_back(endpoint.scrape());
  return pages;
}

void expect_verdict(const Diagnosis& d, Verdict verdict, double least = 0.5) {
  EXPECT_EQ(verdict_name(d.verdict), verdict_name(verdict)) << account(d);
  EXPECT_GE(d.confidence, least) << account(d);
  EXPECT_EQ(d.seen.setup.engine, "ridge");
  for (const std::string& name : d.seen.evidence.files.front().unknown) ADD_FAILURE() << name;
}

template <typename Provoke>
Diagnosis provoked(Verdict verdict, const Provoke& provoke, double least = 0.5) {
  Diagnosis d = provoke();
  expect_verdict(d, verdict, least);
  return d;
}

TEST(OwnEndpoint, IdleAfterWorkAndBeforeAny) {
  PacedEndpoint endpoint({});
  std::vector<MetricsPage> fresh{endpoint.scrape()};
  endpoint.run_for(0.02);
  fresh.push_back(endpoint.scrape());
  expect_verdict(diagnosed(fresh), Verdict::idle);

  endpoint.start({.count = 8});
  endpoint.run_for(0.1);
  endpoint.stop_and_wait();
  std::vector<MetricsPage> pages{endpoint.scrape()};
  endpoint.run_for(0.05);
  pages.push_back(endpoint.scrape());
  const Diagnosis d = diagnosed(pages);
  expect_verdict(d, Verdict::idle);
  EXPECT_TRUE(d.healthy);
  EXPECT_TRUE(d.levers.empty());
}

TEST(OwnEndpoint, OneSequenceIsUnderBatched) {
  const Diagnosis d = provoked(Verdict::under_batched, [] {
    PacedEndpoint endpoint({});
    endpoint.start({.count = 1});
    return diagnosed(window_of(endpoint));
  });
  EXPECT_NEAR(*d.seen[Quantity::batch], 1, 0.05);
  EXPECT_EQ(d.seen.value_or(Quantity::max_running, 0), 64);
}

// The reports of so many steps, one token for each of the sequences, and the page after them.
MetricsPage serve_steps(ServingMetrics& metrics, int steps, const StepReport& report,
                        double time_s) {
  for (int i = 0; i < steps; ++i) {
    metrics.on_step(report);
    for (int t = 0; t < report.decode_sequences; ++t) metrics.on_tokens(1, report.measured_s);
  }
  MetricsPage page = parse_metrics(metrics.text(), "page").front();
  page.time_s = time_s;
  return page;
}

// A step that takes what is expected of the model on the machine.
TEST(OwnEndpoint, OneSequenceOfAnExpectedStepIsUnderBatched) {
  RequestOptions options;
  options.model = "llama-3.1-8b";
  options.machine = "h100-sxm";
  options.stack = "ridge-cuda";
  const double step = predict(make_request(options, Sources::names_and_files)).decode.expected_s;
  ServingMetrics metrics({.page_tokens = 16,
                          .pages = 20000,
                          .max_context = 4096,
                          .model = "meta-llama/Llama-3.1-8B-Instruct"});
  const StepReport report{.measured_s = step,
                          .decode_sequences = 1,
                          .generated_tokens = 1,
                          .running = 1,
                          .pages_free = 19940,
                          .pages_held = 60};
  const std::vector<MetricsPage> pages{serve_steps(metrics, 10, report, 0),
                                       serve_steps(metrics, 500, report, 500 * step)};
  const Diagnosis d = diagnosed(pages, "h100-sxm");
  expect_verdict(d, Verdict::under_batched);
  EXPECT_TRUE(d.run.in_band()) << account(d);
  EXPECT_FALSE(d.levers.empty());
}

TEST(OwnEndpoint, MoreRequestsThanMayRunWithAnEmptyCacheIsAnAdmissionLimit) {
  const Diagnosis d = provoked(Verdict::admission_limit, [] {
    PacedEndpoint endpoint({.runner = {.cache_tokens = 1 << 17, .max_sequences = 8}});
    endpoint.start({.count = 48});
    return diagnosed(window_of(endpoint));
  });
  ASSERT_FALSE(d.levers.empty());
  EXPECT_EQ(d.levers.front().setting, "--max-sequences");
}

// A queue behind as many sequences as are useful: a higher limit would not help. More sequences
// than a test can run.
TEST(OwnEndpoint, AQueueBehindTheUsefulBatchIsALackOfCapacity) {
  ServingMetrics metrics({.page_tokens = 16,
                          .pages = 20000,
                          .max_context = 4096,
                          .max_sequences = 1100,
                          .model = "llama-3.1-8b"});
  const StepReport step{.measured_s = 0.03,
                        .decode_sequences = 1100,
                        .generated_tokens = 1100,
                        .running = 1100,
                        .waiting = 700,
                        .pages_free = 13000,
                        .pages_held = 7000};
  std::vector<MetricsPage> pages{serve_steps(metrics, 10, step, 0)};
  for (int i = 0; i < 300; ++i) {
    metrics.on_first_token(0.4);
    metrics.on_finished({.prompt_tokens = 60,
                         .generated_tokens = 80,
                         .max_tokens = 80,
                         .scheduled_s = 0.35,
                         .first_token_s = 0.4,
                         .end_s = 0.4 + 79 * 0.03});
  }
  pages.push_back(serve_steps(metrics, 20, step, 0.6));
  const Diagnosis d = diagnosed(pages, "h100-sxm");
  expect_verdict(d, Verdict::queue_capacity);
  EXPECT_GE(*d.run.batch, d.run.expected->useful_batch) << account(d);
  // Without the machine it takes the limit for the cause.
  EXPECT_EQ(diagnosed(pages).verdict, Verdict::admission_limit);
}

TEST(OwnEndpoint, AFewPagesArePreemptedFor) {
  // Two readings of the cache's usage may both come just after sequences have ended.
  const Diagnosis d = provoked(
      Verdict::kv_full,
      [] {
        PacedEndpoint endpoint({.runner = {.cache_tokens = 2048, .max_sequences = 64}});
        endpoint.start({.count = 32, .prompt = 64, .output = 128});
        return diagnosed(window_of(endpoint));
      },
      0.3);
  EXPECT_GT(*d.seen[Quantity::preemptions], 0);
}

// Nobody is preempted and the cache is not full, but the next prompt does not fit.
TEST(OwnEndpoint, APromptThatFindsNoPagesIsAFullCache) {
  const Diagnosis d = provoked(Verdict::kv_full, [] {
    PacedEndpoint endpoint({.runner = {.cache_tokens = 2048, .max_sequences = 64},
                            .pace = {.step_s = 2e-3, .token_s = 2e-6}});
    endpoint.start({.count = 8, .prompt = 1200, .output = 40});
    return diagnosed(window_of(endpoint));
  });
  EXPECT_LT(*d.seen[Quantity::kv_usage], 0.9);
}

// Now and then a long prompt comes to eight streams, and stops each of them for some steps.
TEST(OwnEndpoint, LongPromptsAmongStreamsInterfere) {
  const Diagnosis d = provoked(Verdict::prefill_interference, [] {
    PacedEndpoint endpoint({});
    endpoint.start({.count = 8, .prompt = 64, .output = 300});
    std::vector<MetricsPage> pages;
    for (int i = 0; i < 10; ++i) {
      endpoint.run_for(0.08);
      endpoint.send({.prompt = 1500, .output = 4});
      if (i == 1) pages.push_back(endpoint.scrape());
    }
    pages.push_back(endpoint.scrape());
    return diagnosed(pages);
  });
  EXPECT_LT(*d.seen[Quantity::prefill_share], 0.5);
  ASSERT_FALSE(d.levers.empty());
  EXPECT_EQ(d.levers.front().setting, "--chunk");
}

// Everybody sends long prompts and wants short answers.
TEST(OwnEndpoint, LongPromptsWithShortAnswersArePrefillBound) {
  const Diagnosis d = provoked(Verdict::prefill_bound, [] {
    PacedEndpoint endpoint({});
    endpoint.start({.count = 8, .prompt = 1500, .output = 4});
    return diagnosed(window_of(endpoint));
  });
  EXPECT_GT(*d.seen[Quantity::prefill_share], 0.8);
}

// Without a prediction of its steps the engine takes drafts for free, and goes on drafting.
TEST(OwnEndpoint, DraftsThatAreNeverAcceptedDoNotPay) {
  const Diagnosis d = provoked(Verdict::drafts_too_long, [] {
    PacedEndpoint endpoint(
        {.runner = {.cache_tokens = 1 << 16, .max_sequences = 32, .max_logit_rows = 32 * 5},
         .drafts = 4});
    endpoint.start({.count = 24, .prompt = 128, .output = 100});
    return diagnosed(window_of(endpoint));
  });
  EXPECT_EQ(*d.seen[Quantity::accepted], 0);
  EXPECT_GT(*d.seen[Quantity::drafted], 3);
}

// Where drafts do not pay, the engine tries one now and then: that is no fault.
TEST(OwnEndpoint, DraftsThatAreHardlyTriedAreNotToBlame) {
  ServingMetrics metrics({.page_tokens = 16, .pages = 1000, .max_context = 4096});
  StepReport plain{.measured_s = 0.02,
                   .decode_sequences = 40,
                   .generated_tokens = 40,
                   .running = 40,
                   .pages_free = 600,
                   .pages_held = 400};
  StepReport drafts = plain;
  drafts.drafted_sequences = drafts.draft_tokens = 40;
  std::vector<MetricsPage> pages{serve_steps(metrics, 100, plain, 0)};
  serve_steps(metrics, 4, drafts, 0);
  pages.push_back(serve_steps(metrics, 396, plain, 8));
  const Diagnosis d = diagnosed(pages);
  EXPECT_NE(d.verdict, Verdict::drafts_too_long) << account(d);
  EXPECT_FALSE(d.seen.has(Quantity::accepted));
}

}  // namespace
}  // namespace ridge
