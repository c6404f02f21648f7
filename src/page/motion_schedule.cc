#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <sstream>

#include "base/error.h"
#include "base/random.h"
#include "page/api_options.h"
#include "page/motion_api.h"
#include "predict/step_times.h"
#include "serving/simulated_scheduler.h"

namespace ridge {
namespace {

constexpr int kSchedulePage = 16;
constexpr int kShortestPrompt = 64, kLongestPrompt = 1024, kOneLongPrompt = 4096;
constexpr int kLongestAnswer = 48;  // then a half, a quarter and an eighth of it
constexpr int kWholePrompts = 16384;
// A request arrives every so many decode steps on average: faster than the seats empty, so that a
// queue forms.
constexpr double kStepsBetween = 2;
constexpr int kMostScheduleSteps = 4000;
constexpr size_t kMostArrivals = 32;

enum class BatchingPolicy : uint8_t { fixed, continuous, chunked };

struct ScheduleCase {
  const StepClock* clock = nullptr;
  std::vector<SimulatedRequest> requests;
  int seats = 0, pages = 0, chunk = 0;
};

// One long prompt in the middle, so that there is somebody to wait for. Those who fill the seats
// arrive together.
std::vector<SimulatedRequest> seeded_requests(int count, int seed, int seats, int longest,
                                              double step_s) {
  SplitMix64 random{uint64_t(seed)};
  std::vector<SimulatedRequest> list(static_cast<size_t>(count));
  double at = 0;
  for (size_t i = 0; i < list.size(); ++i) {
    SimulatedRequest& r = list[i];
    const double size = unit_interval(random.next()), pause = unit_interval(random.next());
    const double wanted =
        kShortestPrompt * std::pow(double(kLongestPrompt) / kShortestPrompt, size);
    r.output = kLongestAnswer >> random.next() % 4;
    r.prompt = i == list.size() / 2 ? kOneLongPrompt : int(wanted);
    r.prompt = std::max(1, std::min(r.prompt, longest - r.output));
    r.arrival_s = at;
    at += i + 1 < size_t(seats) ? 0 : -std::log1p(-pause) * kStepsBetween * step_s;
  }
  return list;
}

// "0:100:20,0.5:64:8": when each request arrives in seconds, its prompt and its answer in tokens.
std::vector<SimulatedRequest> given_arrivals(const std::string& text, int longest) {
  std::vector<SimulatedRequest> list;
  double last_s = 0;
  std::istringstream stream(text);
  for (std::string part; std::getline(stream, part, ',');) {
    SimulatedRequest r;
    char first = 0, second = 0;
    std::istringstream fields(part);
    fields >> r.arrival_s >> first >> r.prompt >> second >> r.output;
    if (fields.fail() || !fields.eof() || first != ':' || second != ':' || r.arrival_s < last_s ||
        r.prompt < 1 || r.output < 1 || r.prompt > longest - r.output) {
      throw OptionError(
          "arrivals",
          fmt::format("arrivals are seconds:prompt:answer in order of time, prompt and answer "
                      "together at most {} tokens; not '{}'",
                      longest, part.substr(0, 64)));
    }
    last_s = r.arrival_s;
    list.push_back(r);
  }
  if (list.empty() || list.size() > kMostArrivals) {
    throw OptionError("arrivals", fmt::format("1 to {} arrivals", kMostArrivals));
  }
  return list;
}

// One policy's run, step by step.
class ScheduleRun {
 public:
  ScheduleRun(const ScheduleCase& given, BatchingPolicy policy)
      : case_(given), policy_(policy), scheduler_(rules(given, policy), given.pages) {
    for (size_t i = 0; i < given.requests.size(); ++i) {
      Served served;
      served.sequence = &scheduler_.make(i, given.requests[i]);
      served_.push_back(served);
    }
    taken_.resize(size_t(given.seats), false);
  }

  Json json() {
    while (ended_ < served_.size()) {
      admit();
      if (scheduler_.idle()) {
        now_ = case_.requests[next_].arrival_s;
        continue;
      }
      step();
      if (steps_.size() > kMostScheduleSteps) throw Error("the schedule takes too many steps");
    }
    return totals();
  }

 private:
  struct Served {
    SimulatedScheduler::Sequence* sequence = nullptr;
    int seat = -1, before = 0, computed = 0, drawn = 0;
    double scheduled_s = -1, first_s = 0, last_s = 0, end_s = 0, pause_s = 0;
  };

  static ServingPolicy rules(const ScheduleCase& given, BatchingPolicy policy) {
    ServingPolicy rules;
    rules.max_sequences = given.seats;
    rules.page_tokens = kSchedulePage;
    rules.prefix_cache = false;
    rules.chunked = policy == BatchingPolicy::chunked;
    rules.max_tokens = rules.chunked ? given.chunk : kWholePrompts;
    return rules;
  }

  // A static batch is full, or holds all who wait, before it starts; nobody joins it.
  void admit() {
    if (policy_ == BatchingPolicy::fixed && !scheduler_.idle()) return;
    int room = policy_ == BatchingPolicy::fixed ? case_.seats : std::numeric_limits<int>::max();
    for (; next_ < served_.size() && case_.requests[next_].arrival_s <= now_ && room > 0; --room) {
      scheduler_.add(*served_[next_++].sequence);
    }
  }

  void step() {
    for (Served& s : served_) s.before = s.sequence->length();
    scheduler_.plan();
    const double seconds =
        case_.clock->step(scheduler_.decodes(), scheduler_.context(), scheduler_.chunks());
    Json rows = Json::array();
    for (size_t i = 0; i < served_.size(); ++i) note_row(i, rows);
    if (rows.empty()) throw Error("a request does not fit the KV cache of the schedule");
    steps_.push_back({{"start_s", now_}, {"seconds", seconds}, {"rows", rows}});
    busy_s_ += seconds;
    used_s_ += seconds * double(rows.size());
    preemptions_ += scheduler_.preempted();
    now_ += seconds;
    finish();
  }

  void note_row(size_t i, Json& rows) {
    Served& s = served_[i];
    if (s.end_s > 0) return;
    if (!s.sequence->running) {
      if (s.seat >= 0) taken_[size_t(s.seat)] = false;  // preempted
      s.seat = -1;
      return;
    }
    if (s.seat < 0) {
      s.seat = int(std::find(taken_.begin(), taken_.end(), false) - taken_.begin());
      taken_[size_t(s.seat)] = true;
      if (s.scheduled_s < 0) s.scheduled_s = now_;
    }
    const bool decodes = s.sequence->decoding;
    const int prompt = decodes ? 0 : s.sequence->length() - s.before;
    if (decodes ? scheduler_.decodes() == 0 : prompt == 0) return;
    s.computed += prompt;
    // The step draws a token where it decodes, or where it ends the prompt.
    const bool draws = decodes || s.sequence->missing() == 0;
    rows.push_back({{"request", i}, {"seat", s.seat}, {"prompt", prompt}, {"drawn", draws}});
    if (draws) drawing_.push_back(i);
  }

  void finish() {
    scheduler_.finish_steps(first_tokens_, ends_);
    for (const size_t i : drawing_) {
      Served& s = served_[i];
      if (s.drawn == 0) {
        s.first_s = now_;
      } else {
        s.pause_s = std::max(s.pause_s, now_ - s.last_s);
      }
      s.last_s = now_;
      ++s.drawn;
    }
    drawing_.clear();
    for (const SimulatedScheduler::Sequence* sequence : ends_) {
      Served& s = served_[sequence->request];
      s.end_s = now_;
      taken_[size_t(s.seat)] = false;
      ++ended_;
    }
  }

  Json totals() {
    constexpr const char* kNames[] = {"static", "continuous", "chunked"};
    Json requests = Json::array();
    double tokens = 0, redone = 0, pause = 0, first = 0;
    for (size_t i = 0; i < served_.size(); ++i) {
      const Served& s = served_[i];
      const SimulatedRequest& r = case_.requests[i];
      requests.push_back({{"scheduled_s", s.scheduled_s},
                          {"first_token_s", s.first_s},
                          {"end_s", s.end_s},
                          {"longest_pause_s", s.pause_s},
                          {"preemptions", s.sequence->preemptions},
                          {"tokens", s.drawn}});
      tokens += s.drawn;
      redone += s.computed - r.prompt;
      pause = std::max(pause, s.pause_s);
      first += (s.first_s - r.arrival_s) / double(served_.size());
    }
    return {{"policy", kNames[static_cast<int>(policy_)]},
            {"seconds", now_},
            {"tokens", tokens},
            {"tokens_per_s", tokens / now_},
            {"useful_seats", used_s_ / (busy_s_ * case_.seats)},
            {"first_token_s", first},
            {"longest_pause_s", pause},
            {"redone_tokens", redone},
            {"preemptions", preemptions_},
            {"requests", requests},
            {"steps", steps_}};
  }

  const ScheduleCase& case_;
  BatchingPolicy policy_;
  SimulatedScheduler scheduler_;
  std::vector<Served> served_;
  std::vector<bool> taken_;  // by seat
  std::vector<size_t> drawing_;
  std::vector<SimulatedScheduler::Sequence*> first_tokens_, ends_;
  Json steps_ = Json::array();
  size_t next_ = 0, ended_ = 0;
  double now_ = 0, busy_s_ = 0, used_s_ = 0;
  int preemptions_ = 0;
};

std::vector<BatchingPolicy> batching_policies(const ApiOptions& given) {
  const std::string* names = find_option(given, "policy");
  if (!names) return {BatchingPolicy::fixed, BatchingPolicy::continuous};
  std::vector<BatchingPolicy> list;
  std::istringstream stream(*names);
  for (std::string name; std::getline(stream, name, ',');) {
    if (list.size() == 3) throw OptionError("policy", "at most three policies");
    if (name == "static") {
      list.push_back(BatchingPolicy::fixed);
    } else if (name == "continuous") {
      list.push_back(BatchingPolicy::continuous);
    } else if (name == "chunked") {
      list.push_back(BatchingPolicy::chunked);
    } else {
      throw OptionError("policy", fmt::format("policy is static, continuous or chunked, not '{}'",
                                              name.substr(0, 64)));
    }
  }
  return list;
}

}  // namespace

Json schedule_trace(const ApiOptions& given) {
  Request request = request_of(given, 1);
  request.clients.reset();
  request.plan.speculate = 0;
  request.plan.dp = 1;
  check_request(request);
  ScheduleCase schedule;
  schedule.seats = whole_option(given, "seats", 6, 1, 16);
  schedule.chunk = request.plan.chunk > 0 ? int(std::clamp(request.plan.chunk, 16.0, 8192.0)) : 512;
  const int count = whole_option(given, "requests", 16, 4, 32);
  const int seed = whole_option(given, "seed", 1, 0, 1 << 30);
  request.plan.chunk = 0;
  const int held = std::min(kv_pages(request, kSchedulePage), 1 << 20);
  const int limit = whole_option(given, "kv-tokens", held * kSchedulePage, 1, 1 << 24);
  schedule.pages = std::min(held, limit / kSchedulePage);
  const int64_t context = request.model->max_context;
  int longest = std::min(kOneLongPrompt + kLongestAnswer, schedule.pages * kSchedulePage);
  if (context > 0) longest = int(std::min<int64_t>(longest, context));
  if (longest < 2 * kLongestAnswer) {
    throw OptionError(find_option(given, "kv-tokens") ? "kv-tokens" : "model",
                      fmt::format("the KV cache holds {} tokens; a request here takes {}",
                                  std::max(0, longest), 2 * kLongestAnswer));
  }
  const StepTimes clock(request, schedule.seats, kWholePrompts, longest);
  const double step_s = clock.step(schedule.seats, double(schedule.seats) * kLongestPrompt);
  schedule.clock = &clock;
  const std::string* arrivals = find_option(given, "arrivals");
  schedule.requests = arrivals ? given_arrivals(*arrivals, longest)
                               : seeded_requests(count, seed, schedule.seats, longest, step_s);
  Json requests = Json::array(), runs = Json::array();
  for (const SimulatedRequest& r : schedule.requests) {
    requests.push_back({{"arrival_s", r.arrival_s}, {"prompt", r.prompt}, {"output", r.output}});
  }
  for (const BatchingPolicy policy : batching_policies(given)) {
    runs.push_back(ScheduleRun(schedule, policy).json());
  }
  return {{"model", request.model->name},
          {"machine", request.system.name()},
          {"seats", schedule.seats},
          {"chunk", schedule.chunk},
          {"kv_tokens", schedule.pages * kSchedulePage},
          {"requests", requests},
          {"runs", runs}};
}

}  // namespace ridge
