// A small model guesses, the large one checks all guesses in one step: more tokens per read of the
// weights, and the same tokens.
#include <fmt/format.h>

#include <algorithm>

#include "base/units.h"
#include "engine/generate/bench_steps.h"
#include "lab/catalogue.h"
#include "lab/lab_serving.h"
#include "measure/cpu/noise.h"
#include "serving/model_drafter.h"

namespace ridge {
namespace {

constexpr int kMostDrafts = 8;
// On CUDA steps of at most 8 tokens give the same bits whatever is in them (runner.h): a token and
// seven drafts.
constexpr int kMostExactDrafts = 7;

// One answer with up to `drafts` drafts a step.
LabServing speculate(Runner& target, Drafter* drafter, int drafts, const LabRequest& request) {
  SchedulerOptions options = lab_scheduler_options(target);
  options.max_drafts = drafts;
  PagePool pool(target.page_count(), target.options().page_tokens);
  Scheduler scheduler(options, pool, drafter);
  return serve_measured(scheduler, {&request, 1}, target);
}

// With a model's drafts, always as many as there may be.
LabServing speculate_with(Lab& lab, Runner& target, const char* draft, int drafts,
                          const LabRequest& request) {
  if (drafts == 0) return speculate(target, nullptr, 0, request);
  DraftPolicy policy({});  // every step takes the same time: then the most drafts are the best
  const Sampler greedy(SamplerOptions(), target.weights().architecture.vocab);
  ModelDrafter drafter(lab_runner(lab, load_weights(draft),
                                  {.cache_tokens = target.options().cache_tokens,
                                   .max_tokens = target.options().max_tokens}),
                       target.weights().architecture.vocab, policy, [&](RequestId) {
                         return ModelDrafter::Sampling{&greedy, request.prompt.size()};
                       });
  return speculate(target, &drafter, drafts, request);
}

// Drafts from an answer that is known already, every fifth token of it wrong.
class KnownDrafter final : public Drafter {
 public:
  static constexpr size_t kWrongEvery = 5;
  KnownDrafter(std::vector<Token> answer, size_t prompt, int vocab)
      : answer_(std::move(answer)), prompt_(prompt), vocab_(vocab) {}

  static bool is_wrong(size_t place) { return place % kWrongEvery == kWrongEvery - 1; }
  // Tokens of a step, over an answer of `length` tokens whose first one the prompt gave.
  static double tokens_per_step(int drafts, size_t length) {
    size_t place = 1;
    int steps = 0;
    for (; place < length; ++place, ++steps) {
      for (int d = 0; d < drafts && !is_wrong(place) && place + 1 < length; ++d) ++place;
    }
    return double(length - 1) / steps;
  }

  void propose(std::span<const DraftRequest> requests) override {
    for (const DraftRequest& request : requests) {
      const size_t next = request.tokens.size() - prompt_;
      for (size_t place = next; place < answer_.size() && place < next + size_t(request.most);
           ++place) {
        const Token token = answer_[place];
        request.drafts->push_back(is_wrong(place) ? (token + 1) % vocab_ : token);
      }
    }
  }
  void verified(RequestId, int, int) override {}
  void remove(RequestId) override {}

 private:
  std::vector<Token> answer_;
  size_t prompt_;
  int vocab_;
};

// The second step is not counted: the draft model reads the prompt in it.
double decode_rate(const LabServing& run) {
  const std::vector<double>& at = run.requests.front().at_s;
  const double begin = at[1];
  const auto after = std::count_if(at.begin(), at.end(), [&](double t) { return t > begin; });
  return double(after) / (at.back() - begin);
}

// 1 + a + ... + a^k.
double tokens_of_round(double acceptance, int drafts) {
  double sum = 1, power = 1;
  for (int i = 0; i < drafts; ++i) sum += power *= acceptance;
  return sum;
}

// Answers to one request with growing numbers of drafts.
struct Speculated {
  LabSeries series;
  bool equal = true;  // every answer is the first one's
  long accepted = 0, drafted = 0;
  int steps = 0;  // of the last
};

void measure_drafts(Lab& lab, int drafts, const LabBand& band,
                    const std::function<LabServing()>& answer, std::vector<Token>& plain,
                    Speculated& to) {
  lab.announce(band);
  std::vector<double> rates;
  const Disturbance before = disturbance_now();
  for (int repeat = 0; repeat < (lab.quick() ? 1 : 3); ++repeat) {
    lab.check_interrupt();
    const LabServing run = answer();
    const std::vector<Token>& tokens = run.requests.front().tokens;
    if (plain.empty()) plain = tokens;
    to.equal = to.equal && tokens == plain;
    rates.push_back(decode_rate(run));
    to.accepted += run.accepted;
    to.drafted += run.drafted;
    to.steps = run.steps;
  }
  std::sort(rates.begin(), rates.end());
  LabPoint point;
  point.x = drafts;
  point.band = band;
  point.measured = rates[rates.size() / 2];
  point.spread = (rates.back() - rates.front()) / point.measured;
  point.doubt = doubt_between(before, disturbance_now());
  if (point.doubt.empty() && point.spread > 0.25) point.doubt = "the repeats differ widely";
  to.series.points.push_back(std::move(point));
}

double share_of(long part, long whole) { return whole > 0 ? double(part) / double(whole) : 0; }

const LabPoint& fastest_of(const std::vector<LabPoint>& points) {
  return *std::max_element(
      points.begin() + 1, points.end(),
      [](const LabPoint& a, const LabPoint& b) { return a.measured < b.measured; });
}

LabCheck equal_tokens(const std::vector<Token>& plain, const Speculated& made) {
  return {fmt::format("all {} tokens are those of decoding without drafts", plain.size()),
          made.equal};
}

// On a GPU the shipped models wait for launches, and random weights agree with no smaller model:
// the drafts come from the answer itself, and take no time.
LabResult speculation_on_cuda(Lab& lab) {
  LabResult result;
  result.x = {"drafts a step", false, 0, kMostExactDrafts};
  result.y = {"tokens/s", false, 0, 0};
  lab.step("making weights");
  const int output = lab.quick() ? 12 : 96;
  const auto target =
      lab_runner(lab, lab_shape(lab), lab_format(lab, Storage::bf16),
                 {.cache_tokens = 512, .max_tokens = 64, .max_logit_rows = 1 + kMostExactDrafts});
  const int vocab = target->weights().architecture.vocab;
  LabPredictor predictor(lab, *target);
  const LabRequest request{some_tokens(8, vocab, 6), output, 0};
  const double past = double(request.prompt.size()) + output / 2.0;
  lab.step("the answer without drafts");
  std::vector<Token> plain = speculate(*target, nullptr, 0, request).requests.front().tokens;
  Speculated made;
  made.series.name = "4 of 5 drafts right";
  for (const int drafts : {0, 1, 2, 3, 5, kMostExactDrafts}) {
    if (lab.quick() && drafts > 2) break;
    lab.step(fmt::format("{} drafts", drafts));
    const LabBand verify = band_of(predictor.step({1, 1.0 + drafts, past, 1.0 + drafts}));
    KnownDrafter drafter(plain, request.prompt.size(), vocab);
    measure_drafts(
        lab, drafts, rate_of(verify, KnownDrafter::tokens_per_step(drafts, size_t(output))),
        [&] { return speculate(*target, &drafter, drafts, request); }, plain, made);
  }
  const std::vector<LabPoint>& points = made.series.points;
  const LabPoint& best = fastest_of(points);
  result.checks.push_back(equal_tokens(plain, made));
  const double gain = best.measured / points.front().measured;
  decide(result, gain > 1.05, {&best, &points.front()});
  result.sentence = fmt::format(
      "With 4 of 5 drafts right and drafts that take no time, {:.0f} a step give {} tokens/s, "
      "{:.2f}x of {} without (predicted {:.2f}x).",
      best.x, pretty_number(best.measured), gain, pretty_number(points.front().measured),
      best.band.expected / points.front().band.expected);
  result.notes.push_back(
      "The drafts are the tokens of the same answer, every fifth replaced by a wrong one: a model "
      "that drafts would take its own time on top.");
  result.series = {std::move(made.series)};
  return result;
}

LabResult run_speculation(Lab& lab) {
  LabResult result;
  result.x = {"drafts a step", false, 0, kMostDrafts};
  result.y = {"tokens/s", false, 0, 0};
  const char *large = lab.quick() ? "ridge-1m" : "ridge-7m", *small = "ridge-1m";
  lab.step("loading the models");
  const RunnerOptions bounds{
      .cache_tokens = 512, .max_tokens = 64, .max_logit_rows = 1 + kMostDrafts};
  const auto target = lab_runner(lab, load_weights(large), bounds);
  const auto draft = lab_runner(lab, load_weights(small), bounds);
  LabPredictor predictor(lab, *target), draft_predictor(lab, *draft);
  const int output = lab.quick() ? 12 : 96;
  const auto request = [&](const char* text) {
    return LabRequest{target->weights().tokenizer->encode(text), output, 0};
  };

  // How often a draft is right does not depend on time: counted on another text, before.
  lab.step("counting accepted drafts");
  const LabServing counted =
      speculate_with(lab, *target, small, 4, request("The history of science shows that"));
  const double acceptance = share_of(counted.accepted, counted.drafted);

  const LabRequest asked = request("The memory of a computer");
  const double past = double(asked.prompt.size()) + output / 2.0;
  const LabBand pass = band_of(draft_predictor.step({1, 1, past, 1}));
  const auto verification = [&](int drafts) {
    return band_of(predictor.step({1, 1.0 + drafts, past, 1.0 + drafts}));
  };
  Speculated made;
  made.series.name = fmt::format("{} drafts for {}", small, large);
  std::vector<Token> plain;
  for (const int drafts : {0, 1, 2, 3, 4, 6, kMostDrafts}) {
    if (lab.quick() && drafts > 2) break;
    lab.step(fmt::format("{} drafts", drafts));
    const LabBand verify = verification(drafts);
    const LabBand round{verify.low + drafts * pass.low, verify.expected + drafts * pass.expected,
                        verify.high + drafts * pass.high};
    measure_drafts(
        lab, drafts, rate_of(round, tokens_of_round(acceptance, drafts)),
        [&] { return speculate_with(lab, *target, small, drafts, asked); }, plain, made);
  }
  const std::vector<LabPoint>& points = made.series.points;
  const LabPoint& best = fastest_of(points);
  result.checks.push_back(equal_tokens(plain, made));
  const double gain = best.measured / points.front().measured;
  decide(result, gain > 1.05, {&best, &points.front()});
  result.sentence = fmt::format(
      "{} of the drafts are right up to the first wrong one (on another text {}). Best "
      "with {:.0f} a step: {} tokens/s, {:.2f}x of {} without (predicted {:.2f}x). By the "
      "predictor a draft takes {} of a step, and verifying them all {:.2f} steps.",
      pretty_percent(share_of(made.accepted, made.drafted)), pretty_percent(acceptance), best.x,
      pretty_number(best.measured), gain, pretty_number(points.front().measured),
      best.band.expected / points.front().band.expected,
      pretty_percent(pass.expected / verification(0).expected),
      verification(int(best.x)).expected / verification(0).expected);
  result.notes.push_back(fmt::format("With {:.0f} drafts the answer took {} steps instead of {}.",
                                     points.back().x, made.steps, output));
  result.series = {std::move(made.series)};
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
    "ridge serve --draft ridge-1m --speculate 4",
    run_speculation,
    speculation_on_cuda,
    6,
    {75e6, 85e6, 2e9, 20e9}};

}  // namespace ridge
