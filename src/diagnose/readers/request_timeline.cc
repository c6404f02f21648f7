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

// A request in service: start <= run <= first <= last.
struct ServedRequest {
  double start = 0;  // arrived or queued
  double run = 0;    // scheduled; where that is not known, the start
  double first = 0, last = 0;
  double prompt = 0, output = 0;
};

std::optional<ServedRequest> served(const LoggedRequest& r) {
  ServedRequest s;
  s.prompt = std::max(0., r.prompt);
  s.output = std::max(0., r.output);
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
  s.run = r.scheduled ? *r.scheduled : s.start;
  const bool ordered = s.start <= s.run && s.run <= s.first && s.first <= s.last;
  if (!ordered || !std::isfinite(s.start) || !std::isfinite(s.last)) return std::nullopt;
  return s;
}

struct SteadyPart {
  double begin = 0, end = 0;

  double length() const { return end - begin; }
  bool has(double t) const { return t >= begin && t <= end; }
  // Seconds of [from, to] inside.
  double overlap(double from, double to) const {
    return std::max(0., std::min(to, end) - std::max(from, begin));
  }
};

SteadyPart steady_part(const std::vector<ServedRequest>& requests) {
  std::vector<std::pair<double, int>> events;
  for (const ServedRequest& r : requests) {
    events.push_back({r.run, 1});
    events.push_back({r.last, -1});
  }
  std::sort(events.begin(), events.end());
  int running = 0, peak = 0;
  for (const auto& [time, change] : events) peak = std::max(peak, running += change);
  const double level = 0.5 * peak;
  SteadyPart part{events.front().first, events.back().first};
  running = 0;
  bool inside = false;
  for (const auto& [time, change] : events) {
    const int before = running;
    running += change;
    if (!inside && running >= level) {
      part.begin = time;
      inside = true;
    }
    if (before >= level && running < level) part.end = time;
  }
  return part;
}

// Means of what the requests of the steady part saw.
void add_timeline_latencies(const std::vector<ServedRequest>& requests, const SteadyPart& part,
                            EvidenceFile& file) {
  std::vector<double> ttft, queue, prefill, e2e;
  double decode_s = 0, gaps = 0, decode_sum = 0;
  for (const ServedRequest& r : requests) {
    if (part.has(r.first)) {
      ttft.push_back(r.first - r.start);
      queue.push_back(r.run - r.start);
      prefill.push_back(r.first - r.run);
    }
    if (!part.has(r.last)) continue;
    e2e.push_back(r.last - r.start);
    decode_sum += r.last - r.first;
    if (r.output < 2 || r.last <= r.first) continue;
    decode_s += r.last - r.first;
    gaps += r.output - 1;
  }
  const auto add = [&](Q q, double value, const char* origin) {
    file.add(q, value, Trust::window, origin, part.length());
  };
  if (gaps > 0) add(Q::itl, decode_s / gaps, "(last - first token) / (output - 1)");
  const auto mean = [](const std::vector<double>& values) { return percentiles_of(values).mean; };
  if (!e2e.empty()) {
    add(Q::e2e, mean(e2e), "last token - arrival");
    if (decode_s > 0) add(Q::decode_time, decode_sum / double(e2e.size()), "last - first token");
  }
  if (ttft.empty() || gaps == 0) return;  // without first tokens there is no TTFT
  const Percentiles first = percentiles_of(ttft);
  add(Q::ttft, first.mean, "first token - arrival");
  add(Q::ttft_p50, first.p50, "first token - arrival");
  add(Q::ttft_p99, first.p99, "first token - arrival");
  const bool scheduled = std::any_of(requests.begin(), requests.end(),
                                     [](const ServedRequest& r) { return r.run > r.start; });
  if (scheduled) {
    add(Q::queue_time, mean(queue), "scheduled - arrival");
    add(Q::prefill_time, mean(prefill), "first token - scheduled");
  }
}

void add_timeline_load(const std::vector<ServedRequest>& requests, const SteadyPart& part,
                       EvidenceFile& file) {
  double running = 0, waiting = 0, decoding = 0, output = 0, prompt = 0, finished = 0;
  double prompt_sum = 0, output_sum = 0, first_start = requests[0].start, last_start = first_start;
  for (const ServedRequest& r : requests) {
    running += part.overlap(r.run, r.last);
    waiting += part.overlap(r.start, r.run);
    const double decode = part.overlap(r.first, r.last);
    decoding += decode;
    // Tokens come evenly between the first and the last.
    output += r.last > r.first ? r.output * decode / (r.last - r.first)
                               : (part.has(r.last) ? r.output : 0);
    prompt += part.has(r.first) ? r.prompt : 0;
    finished += part.has(r.last) ? 1 : 0;
    prompt_sum += r.prompt;
    output_sum += r.output;
    first_start = std::min(first_start, r.start);
    last_start = std::max(last_start, r.start);
  }
  const double count = double(requests.size()), s = part.length();
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

}  // namespace

EvidenceFile observe_requests(std::vector<LoggedRequest> requests, const std::string& name) {
  std::vector<ServedRequest> done;
  size_t failed = 0, durations = 0;
  double ttft = 0, e2e = 0, per_token_s = 0, gaps = 0, prompt = 0, output = 0;
  for (const LoggedRequest& r : requests) {
    if (r.failed) {
      ++failed;
      continue;
    }
    if (const auto s = served(r)) {
      done.push_back(*s);
    } else if (r.ttft && r.e2e && *r.ttft >= 0 && *r.e2e >= *r.ttft && std::isfinite(*r.e2e)) {
      ++durations;
      ttft += *r.ttft;
      e2e += *r.e2e;
      prompt += std::max(0., r.prompt);
      output += std::max(0., r.output);
      if (r.output >= 2) {
        per_token_s += *r.e2e - *r.ttft;
        gaps += r.output - 1;
      }
    }
  }
  EvidenceFile file;
  file.path = name;
  file.kind = "log of requests";
  const size_t bad = requests.size() - failed - done.size() - durations;
  if (!done.empty()) {
    const SteadyPart part = steady_part(done);
    double begin = done[0].start, end = done[0].last;
    for (const ServedRequest& r : done) {
      begin = std::min(begin, r.start);
      end = std::max(end, r.last);
    }
    file.window = fmt::format("{} requests, {} without warm-up and drain", done.size(),
                              pretty_time(part.length()));
    file.notes.push_back(
        fmt::format("the steady part is {} of {}: {} of warm-up and {} of drain "
                    "are left out",
                    pretty_time(part.length()), pretty_time(end - begin),
                    pretty_time(part.begin - begin), pretty_time(end - part.end)));
    add_timeline_load(done, part, file);
    add_timeline_latencies(done, part, file);
    if (durations > 0) {
      file.notes.push_back(fmt::format("{} requests without an arrival are left out", durations));
    }
  } else if (durations > 0) {
    // Latencies alone: when each request ran is not known.
    const double n = double(durations);
    file.window = fmt::format("{} requests", durations);
    file.add(Q::requests, n, Trust::window, "requests of the log");
    file.add(Q::ttft, ttft / n, Trust::window, "ttft");
    file.add(Q::e2e, e2e / n, Trust::window, "e2e");
    if (prompt > 0) file.add(Q::prompt, prompt / n, Trust::window, "input tokens");
    if (output > 0) file.add(Q::output, output / n, Trust::window, "output tokens");
    if (gaps > 0) {
      file.add(Q::itl, per_token_s / gaps, Trust::window, "(e2e - ttft) / (output - 1)");
    }
  } else {
    throw Error("{}: none of {} requests has times in order (arrival, first token, last token)",
                name, requests.size());
  }
  if (failed > 0) {
    file.add(Q::failed, double(failed), Trust::window, "requests with an error");
    file.notes.push_back(fmt::format("{} of {} requests failed", failed, requests.size()));
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
