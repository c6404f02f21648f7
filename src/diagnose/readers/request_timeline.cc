#include "diagnose/readers/request_timeline.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/percentiles.h"
#include "base/units.h"

namespace ridge {
namespace {

using Q = Quantity;

// Times further apart than this are of different clocks: one since 1970, one since the boot.
constexpr double kOtherClock_s = 1e6;

}  // namespace

std::optional<RequestTimeline::Served> RequestTimeline::served(const LoggedRequest& r) {
  Served s{};
  s.prompt = float(std::max(0., r.prompt));
  s.output = float(std::max(0., r.output));
  const std::optional<double> some = r.first ? r.first : r.last;
  const bool same_clock = r.arrival && (!some || std::abs(*r.arrival - *some) < kOtherClock_s);
  if (same_clock) {
    s.start = *r.arrival;
  } else if (r.queued) {
    s.start = *r.queued;
  } else if (r.scheduled) {
    s.start = *r.scheduled;
  } else if (r.first && r.ttft) {
    s.start = *r.first - *r.ttft;
  } else if (r.last && r.e2e) {
    s.start = *r.last - *r.e2e;
  } else {
    return std::nullopt;
  }
  if (r.last) {
    s.last = *r.last;
  } else if (r.e2e) {
    s.last = s.start + *r.e2e;
  } else {
    return std::nullopt;
  }
  s.first = r.first ? *r.first : r.ttft ? s.start + *r.ttft : s.last;
  const double run = r.scheduled ? *r.scheduled : s.start;
  const bool ordered = s.start <= run && run <= s.first && s.first <= s.last;
  if (!ordered || !std::isfinite(s.start) || !std::isfinite(s.last)) return std::nullopt;
  s.until_run = float(run - s.start);
  return s;
}

struct RequestTimeline::SteadyPart {
  double begin = 0, end = 0;

  double length() const { return end - begin; }
  bool has(double t) const { return t >= begin && t <= end; }
  // Seconds of [from, to] inside.
  double overlap(double from, double to) const {
    return std::max(0., std::min(to, end) - std::max(from, begin));
  }
};

RequestTimeline::SteadyPart RequestTimeline::steady_part() const {
  std::vector<double> runs, lasts;
  runs.reserve(done_.size());
  lasts.reserve(done_.size());
  for (const Served& r : done_) {
    runs.push_back(r.run());
    lasts.push_back(std::max(r.run(), r.last));
  }
  std::sort(runs.begin(), runs.end());
  std::sort(lasts.begin(), lasts.end());
  // Calls visit(time, change of the running requests) in order; at equal times the ends first.
  const auto changes = [&](const auto& visit) {
    for (size_t r = 0, l = 0; l < lasts.size();) {
      const bool ends = r == runs.size() || lasts[l] <= runs[r];
      ends ? visit(lasts[l++], -1) : visit(runs[r++], 1);
    }
  };
  int running = 0, peak = 0;
  changes([&](double, int change) { peak = std::max(peak, running += change); });
  const double level = 0.5 * peak;
  SteadyPart part{std::min(runs.front(), lasts.front()), lasts.back()};
  running = 0;
  bool inside = false;
  changes([&](double time, int change) {
    const int before = running;
    running += change;
    if (!inside && running >= level) {
      part.begin = time;
      inside = true;
    }
    if (before >= level && running < level) part.end = time;
  });
  return part;
}

// Means of what the requests of the steady part saw.
void RequestTimeline::add_latencies(const SteadyPart& part, EvidenceFile& file) const {
  std::vector<double> ttft;
  double queue = 0, prefill = 0, e2e = 0, ended = 0;
  double decode_s = 0, gaps = 0, decode_sum = 0;
  for (const Served& r : done_) {
    if (part.has(r.first)) {
      ttft.push_back(r.first - r.start);
      queue += double(r.until_run);
      prefill += r.first - r.run();
    }
    if (!part.has(r.last)) continue;
    ++ended;
    e2e += r.last - r.start;
    decode_sum += r.last - r.first;
    if (r.output < 2 || r.last <= r.first) continue;
    decode_s += r.last - r.first;
    gaps += double(r.output) - 1;
  }
  const auto add = [&](Q q, double value, const char* origin) {
    file.add(q, value, Trust::window, origin, part.length());
  };
  if (gaps > 0) add(Q::itl, decode_s / gaps, "(last - first token) / (output - 1)");
  if (ended > 0) {
    add(Q::e2e, e2e / ended, "last token - arrival");
    if (decode_s > 0) add(Q::decode_time, decode_sum / ended, "last - first token");
  }
  if (ttft.empty() || gaps == 0) return;  // without first tokens there is no TTFT
  const double firsts = double(ttft.size());
  const Percentiles first = percentiles_of(std::move(ttft));
  add(Q::ttft, first.mean, "first token - arrival");
  add(Q::ttft_p50, first.p50, "first token - arrival");
  add(Q::ttft_p99, first.p99, "first token - arrival");
  const bool scheduled =
      std::any_of(done_.begin(), done_.end(), [](const Served& r) { return r.until_run > 0; });
  if (scheduled) {
    add(Q::queue_time, queue / firsts, "scheduled - arrival");
    add(Q::prefill_time, prefill / firsts, "first token - scheduled");
  }
}

void RequestTimeline::add_load(const SteadyPart& part, EvidenceFile& file) const {
  double running = 0, waiting = 0, decoding = 0, output = 0, prompt = 0, finished = 0;
  double prompt_sum = 0, output_sum = 0, first_start = done_[0].start, last_start = first_start;
  for (const Served& r : done_) {
    running += part.overlap(r.run(), r.last);
    waiting += part.overlap(r.start, r.run());
    const double decode = part.overlap(r.first, r.last);
    decoding += decode;
    // Tokens come evenly between the first and the last.
    output += r.last > r.first ? double(r.output) * decode / (r.last - r.first)
                               : (part.has(r.last) ? double(r.output) : 0);
    prompt += part.has(r.first) ? double(r.prompt) : 0;
    finished += part.has(r.last) ? 1 : 0;
    prompt_sum += double(r.prompt);
    output_sum += double(r.output);
    first_start = std::min(first_start, r.start);
    last_start = std::max(last_start, r.start);
  }
  const double count = double(done_.size()), s = part.length();
  const auto add = [&](Q q, double value, const char* origin) {
    file.add(q, value, Trust::window, origin, s);
  };
  add(Q::requests, count, "requests of the log");
  if (prompt_sum > 0) add(Q::prompt, prompt_sum / count, "input tokens");
  if (output_sum > 0) add(Q::output, output_sum / count, "output tokens");
  if (last_start > first_start && count > 1) {
    add(Q::arrivals_per_s, (count - 1) / (last_start - first_start), "arrivals");
  }
  if (!(s > 0)) return;
  add(Q::tokens_per_s, output / s, "output tokens in the steady part");
  if (prompt_sum > 0) add(Q::prompt_tokens_per_s, prompt / s, "prompts that ended prefill there");
  add(Q::requests_per_s, finished / s, "requests that ended there");
  const bool scheduled = waiting > 0;
  add(scheduled ? Q::running : Q::concurrency, running / s,
      scheduled ? "from scheduling to the last token" : "from arrival to the last token");
  if (scheduled) add(Q::waiting, waiting / s, "from arrival to scheduling");
  if (decoding > 0) add(Q::batch, decoding / s, "from the first to the last token");
}

void RequestTimeline::add(const LoggedRequest& r) {
  if (!r.timed() && !r.failed) return;
  ++requests_;
  timed_ += r.timed() ? 1 : 0;
  if (r.failed) {
    ++failed_;
  } else if (const auto s = served(r)) {
    done_.push_back(*s);
  } else if (r.ttft && r.e2e && *r.ttft >= 0 && *r.e2e >= *r.ttft && std::isfinite(*r.e2e)) {
    ++durations_;
    ttft_ += *r.ttft;
    e2e_ += *r.e2e;
    prompt_ += std::max(0., r.prompt);
    output_ += std::max(0., r.output);
    if (r.output < 2) return;
    per_token_s_ += *r.e2e - *r.ttft;
    gaps_ += r.output - 1;
  }
}

EvidenceFile RequestTimeline::finish(const std::string& name) const {
  EvidenceFile file;
  file.path = name;
  file.kind = "log of requests";
  const size_t bad = requests_ - failed_ - done_.size() - durations_;
  if (!done_.empty()) {
    const SteadyPart part = steady_part();
    double begin = done_[0].start, end = done_[0].last;
    for (const Served& r : done_) {
      begin = std::min(begin, r.start);
      end = std::max(end, r.last);
    }
    file.window = fmt::format("{} requests, {} without warm-up and drain", done_.size(),
                              pretty_time(part.length()));
    file.notes.push_back(
        fmt::format("the steady part is {} of {}: {} of warm-up and {} of drain "
                    "are left out",
                    pretty_time(part.length()), pretty_time(end - begin),
                    pretty_time(part.begin - begin), pretty_time(end - part.end)));
    add_load(part, file);
    add_latencies(part, file);
    if (durations_ > 0) {
      file.notes.push_back(fmt::format("{} requests without an arrival are left out", durations_));
    }
  } else if (durations_ > 0) {
    // Latencies alone: when each request ran is not known.
    const double n = double(durations_);
    file.window = fmt::format("{} requests", durations_);
    file.add(Q::requests, n, Trust::window, "requests of the log");
    file.add(Q::ttft, ttft_ / n, Trust::window, "ttft");
    file.add(Q::e2e, e2e_ / n, Trust::window, "e2e");
    if (prompt_ > 0) file.add(Q::prompt, prompt_ / n, Trust::window, "input tokens");
    if (output_ > 0) file.add(Q::output, output_ / n, Trust::window, "output tokens");
    if (gaps_ > 0) {
      file.add(Q::itl, per_token_s_ / gaps_, Trust::window, "(e2e - ttft) / (output - 1)");
    }
  } else {
    throw Error("{}: none of {} requests has times in order (arrival, first token, last token)",
                name, requests_);
  }
  if (failed_ > 0) {
    file.add(Q::failed, double(failed_), Trust::window, "requests with an error");
    file.notes.push_back(fmt::format("{} of {} requests failed", failed_, requests_));
  }
  if (bad > 0) {
    file.notes.push_back(
        fmt::format("{} requests whose times are missing or not in order are left "
                    "out",
                    bad));
  }
  return file;
}

}  // namespace ridge
