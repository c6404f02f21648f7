#include "plan/traffic.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/random.h"
#include "base/units.h"

namespace ridge {
namespace {

constexpr double kBurstWindow = 30;  // seconds

Trace made_traffic(const TrafficOptions& o) {
  WorkloadOptions options;
  options.seed = o.seed;
  options.requests = o.requests;
  options.prompt = o.prompt;
  options.output = o.output;
  options.rate = o.burstiness >= kEvenArrivals ? 0 : o.rate;
  options.burstiness = o.burstiness;
  const Workload workload(options);
  Trace traffic;
  traffic.format = "made";
  traffic.has_arrivals = o.rate > 0;
  const bool shares = o.prefix_groups > 0 && o.prefix_tokens > 0;
  // One block for the whole prefix: simulated_requests cuts it into pages.
  traffic.block_tokens = shares ? o.prefix_tokens : 0;
  traffic.rows.reserve(static_cast<size_t>(o.requests));
  for (int i = 0; i < o.requests; ++i) {
    TraceRow& row = traffic.rows.emplace_back();
    row.index = i;
    row.arrival_s = workload.arrivals()[static_cast<size_t>(i)];
    if (o.rate > 0 && options.rate <= 0) row.arrival_s = i / o.rate;
    row.prompt_tokens = workload.prompt_tokens(i, 0);
    row.output_tokens = workload.output_tokens(i, 0);
    if (!shares) continue;
    row.prompt_tokens += o.prefix_tokens;
    row.blocks.push_back(i % o.prefix_groups);
  }
  return traffic;
}

// The id of a page: which blocks it lies in, and where it begins in the first of them.
int64_t page_id(const TraceRow& row, int64_t begin, int64_t end, int64_t block_tokens) {
  const int64_t first = begin / block_tokens;
  uint64_t id = hash64(uint64_t(begin % block_tokens), uint64_t(row.blocks[size_t(first)]), 0);
  for (int64_t block = first + 1; block * block_tokens < end; ++block) {
    id = hash64(id, uint64_t(row.blocks[size_t(block)]), 1);
  }
  return int64_t(id);
}

}  // namespace

Trace make_traffic(const TrafficOptions& options) {
  if (options.trace.empty()) return made_traffic(options);
  Trace traffic = read_trace(options.trace);
  if (options.requests > 0 && traffic.rows.size() > size_t(options.requests)) {
    traffic.rows.resize(size_t(options.requests));
  }
  if (options.rate <= 0) return traffic;
  if (!traffic.has_arrivals || traffic.duration_s() <= 0) {  // lengths alone: arrivals are made
    TrafficOptions arrivals = options;
    arrivals.trace.clear();
    arrivals.requests = int(traffic.rows.size());
    arrivals.prefix_groups = 0;
    const Trace made = made_traffic(arrivals);
    for (size_t i = 0; i < traffic.rows.size(); ++i) {
      traffic.rows[i].arrival_s = made.rows[i].arrival_s;
    }
    traffic.has_arrivals = true;
    return traffic;
  }
  return with_rate(std::move(traffic), options.rate / traffic.requests_per_s());
}

std::string traffic_words(const Trace& traffic) {
  double prompt = 0, output = 0;
  for (const TraceRow& row : traffic.rows) {
    prompt += row.prompt_tokens;
    output += row.output_tokens;
  }
  const double count = double(traffic.rows.size());
  std::string words = fmt::format("{} requests", traffic.rows.size());
  if (traffic.duration_s() > 0) {
    words += fmt::format(" in {}, {}/s", pretty_time(traffic.duration_s()),
                         pretty_number(traffic.requests_per_s()));
  }
  words += fmt::format(", prompts of {:.0f} tokens on average, answers of {:.0f}", prompt / count,
                       output / count);
  if (traffic.failed > 0) words += fmt::format(" ({} failed ones left out)", traffic.failed);
  return words;
}

int longest_request(const Trace& traffic) {
  int longest = 1;
  for (const TraceRow& row : traffic.rows) {
    longest = std::max(longest, row.prompt_tokens + row.output_tokens);
  }
  return longest;
}

std::vector<SimulatedRequest> simulated_requests(const Trace& traffic, int page_tokens) {
  std::vector<SimulatedRequest> requests(traffic.rows.size());
  for (size_t i = 0; i < requests.size(); ++i) {
    const TraceRow& row = traffic.rows[i];
    SimulatedRequest& request = requests[i];
    request.arrival_s = row.arrival_s;
    request.prompt = row.prompt_tokens;
    request.output = row.output_tokens;
    const int64_t block = traffic.block_tokens;
    const int64_t covered =
        std::min<int64_t>(row.prompt_tokens, int64_t(row.blocks.size()) * block);
    request.blocks.reserve(size_t(covered / page_tokens));
    for (int64_t begin = 0; begin + page_tokens <= covered; begin += page_tokens) {
      request.blocks.push_back(page_id(row, begin, begin + page_tokens, block));
    }
  }
  return requests;
}

Trace with_rate(Trace traffic, double factor) {
  const double first = traffic.rows.front().arrival_s;
  for (TraceRow& row : traffic.rows) row.arrival_s = first + (row.arrival_s - first) / factor;
  return traffic;
}

Trace with_lengths(Trace traffic, double factor) {
  const auto scaled = [&](int tokens) { return std::max(1, int(std::lround(factor * tokens))); };
  for (TraceRow& row : traffic.rows) {
    row.prompt_tokens = scaled(row.prompt_tokens);
    row.output_tokens = scaled(row.output_tokens);
  }
  if (traffic.block_tokens > 0) traffic.block_tokens = scaled(traffic.block_tokens);
  return traffic;
}

Trace with_bursts(Trace traffic, double factor) {
  for (TraceRow& row : traffic.rows) {
    const double window = std::floor(row.arrival_s / kBurstWindow) * kBurstWindow;
    row.arrival_s = window + (row.arrival_s - window) / factor;
  }
  return traffic;
}

Trace between(const Trace& traffic, double begin_s, double end_s) {
  Trace part;
  part.format = traffic.format;
  part.block_tokens = traffic.block_tokens;
  const auto at = [&](double time) {
    return std::lower_bound(traffic.rows.begin(), traffic.rows.end(), time,
                            [](const TraceRow& row, double t) { return row.arrival_s < t; });
  };
  part.rows.assign(at(begin_s), at(end_s));
  for (TraceRow& row : part.rows) row.arrival_s -= begin_s;
  return part;
}

}  // namespace ridge
