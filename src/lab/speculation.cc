// A small model guesses, the large one checks all guesses in one step: more tokens per read of the
// weights, and the same tokens.
#include <fmt/format.h>

#include <algorithm>

#include "base/units.h"
#include "lab/catalogue.h"
#include "lab/lab_serving.h"
#include "serving/model_drafter.h"

namespace ridge {
namespace {

constexpr int kMostDrafts = 8;

// One answer with up to `drafts` drafts a step, always as many as there may be.
LabServing speculate(Lab& lab, Runner& target, const char* draft, int drafts,
                     const LabRequest& request) {
  DraftPolicy policy({});  // every step takes the same time: then the most drafts are the best
  const Sampler greedy(SamplerOptions(), target.weights().architecture.vocab);
  std::unique_ptr<ModelDrafter> drafter;
  if (drafts > 0) {
    drafter = std::make_unique<ModelDrafter>(
        lab_runner(lab, load_weights(draft),
                   {.cache_tokens = target.options().cache_tokens,
                    .max_tokens = target.options().max_tokens}),
        target.weights().architecture.vocab, policy, [&](RequestId) {
          return ModelDrafter::Sampling{&greedy, request.prompt.size()};
        });
  }
  SchedulerOptions options = lab_scheduler_options(target);
  options.max_drafts = drafts;
  PagePool pool(target.page_count(), target.options().page_tokens);
  Scheduler scheduler(options, pool, drafter.get());
  return serve_measured(scheduler, {&request, 1}, target);
}

// From the second token on: the prompt and the draft model's first pass over it are not decoding.
double decode_rate(const LabServing& run) {
  const LabServed& served = run.requests.front();
  const auto after = size_t(std::count(served.at_s.begin(), served.at_s.end(), served.at_s[0]));
  const size_t from = std::min(served.at_s.size() - 2, after);
  return double(served.at_s.size() - 1 - from) / (served.at_s.back() - served.at_s[from]);
}

// 1 + a + ... + a^k.
double tokens_of_round(double acceptance, int drafts) {
  double sum = 1, power = 1;
  for (int i = 0; i < drafts; ++i) sum += power *= acceptance;
  return sum;
}

LabResult run_speculation(Lab& lab) {
  LabResult result;
  result.x = {"drafts a step", false, 0, kMostDrafts};
  result.y = {"tokens/s", false, 0, 0};
  const char* names[] = {lab.quick() ? "ridge-1m" : "ridge-7m", "ridge-1m"};
  lab.step("loading the models");
  const RunnerOptions bounds{
      .cache_tokens = 512, .max_tokens = 64, .max_logit_rows = 1 + kMostDrafts};
  const auto target = lab_runner(lab, load_weights(names[0]), bounds);
  const auto draft = lab_runner(lab, load_weights(names[1]), bounds);
  LabPredictor predictor(lab, *target), draft_predictor(lab, *draft);
  const int output = lab.quick() ? 12 : 96;
  const auto request = [&](const char* text) {
    return LabRequest{target->weights().tokenizer->encode(text), output, 0};
  };

  // How often a draft is right is no matter of time: counted on another text, before.
  lab.step("counting accepted drafts");
  const LabServing counted =
      speculate(lab, *target, names[1], 4, request("The history of science shows that"));
  const double acceptance =
      counted.drafted > 0 ? double(counted.accepted) / double(counted.drafted) : 0;

  const LabRequest asked = request("The memory of a computer");
  const double past = double(asked.prompt.size()) + output / 2.0;
  const Band draft_pass = band_of(draft_predictor.step({1, 1, past, 1}));
  LabSeries series{fmt::format("{} drafts for {}", names[1], names[0]), {}};
  std::vector<Token> plain;
  bool equal = true;
  double best = 0, rounds = 0;
  int best_drafts = 0;
  long accepted = 0, drafted = 0;
  for (const int drafts : {0, 1, 2, 3, 4, 6, kMostDrafts}) {
    if (lab.quick() && drafts > 2) break;
    lab.step(fmt::format("{} drafts", drafts));
    Band round = band_of(predictor.step({1, 1.0 + drafts, past, 1.0 + drafts}));
    round = {round.low + drafts * draft_pass.low, round.expected + drafts * draft_pass.expected,
             round.high + drafts * draft_pass.high};
    LabPoint point;
    point.x = drafts;
    point.band = rate_of(round, tokens_of_round(acceptance, drafts));
    std::vector<double> rates;
    for (int repeat = 0; repeat < (lab.quick() ? 1 : 3); ++repeat) {
      const LabServing run = speculate(lab, *target, names[1], drafts, asked);
      const std::vector<Token>& tokens = run.requests.front().tokens;
      if (plain.empty()) plain = tokens;
      equal = equal && tokens == plain;
      rates.push_back(decode_rate(run));
      accepted += run.accepted;
      drafted += run.drafted;
      rounds = run.steps;
    }
    std::sort(rates.begin(), rates.end());
    point.measured = rates[rates.size() / 2];
    point.spread = (rates.back() - rates.front()) / point.measured;
    if (point.spread > 0.25) point.doubt = "the repeats differ widely";
    if (drafts > 0 && point.measured > best) best = point.measured, best_drafts = drafts;
    series.points.push_back(std::move(point));
  }
  result.checks.push_back(
      {fmt::format("all {} tokens are those of decoding without drafts", plain.size()), equal});
  const double alone = series.points.front().measured;
  result.verdict = equal && best > 1.05 * alone ? LabVerdict::confirmed : LabVerdict::refuted;
  result.sentence = fmt::format(
      "{} of the drafts that were decided are right (on another text {}). {} drafts a step are the "
      "best: {} tokens/s, {:.2f}x of {} without.{}",
      pretty_percent(drafted > 0 ? double(accepted) / double(drafted) : 0),
      pretty_percent(acceptance), best_drafts, pretty_number(best), best / alone,
      pretty_number(alone),
      best > 1.05 * alone
          ? ""
          : fmt::format(
                " A draft takes {} of a step, and {} tokens are verified in {} of it.",
                pretty_percent(draft_pass.expected / predictor.step({1, 1, past, 1}).expected_s),
                1 + best_drafts,
                fmt::format(
                    "{:.2f}x",
                    predictor.step({1, 1.0 + best_drafts, past, 1.0 + best_drafts}).expected_s /
                        predictor.step({1, 1, past, 1}).expected_s)));
  result.notes.push_back(fmt::format("With {} drafts the answer took {:.0f} steps instead of {}.",
                                     int(series.points.back().x), rounds, output));
  result.series = {std::move(series)};
  return result;
}

}  // namespace

const Experiment kSpeculationExperiment{
    "speculation",
    LabTopic::serving,
    "What do guessed tokens gain?",
    "Verifying several guessed tokens takes little longer than computing one: more tokens per "
    "second, and exactly the same tokens.",
    "speculative decoding",
    "ridge serve ridge-7m --draft ridge-1m --drafts 4",
    true,
    false,
    6,
    run_speculation};

}  // namespace ridge
