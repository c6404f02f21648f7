#include "diagnose/readers/live.h"

#include <algorithm>
#include <chrono>
#include <thread>

#include "base/error.h"
#include "diagnose/readers/engine_metrics.h"
#include "load/http_client.h"

namespace ridge {
namespace {

using LiveClock = std::chrono::steady_clock;

constexpr double kPageSeconds = 10;      // that one scrape may take
constexpr double kMostScrapes = 240;     // they are kept until the end
constexpr double kSoonestScrape = 0.05;  // s

double seconds_since(LiveClock::time_point start) {
  return std::chrono::duration<double>(LiveClock::now() - start).count();
}

MetricsPage scrape_page(HttpClient& client, const std::string& url) {
  const HttpClient::Answer answer = client.ask("");
  if (answer.status == 0) throw Error("{}: no whole answer within {} s", url, kPageSeconds);
  if (answer.status != 200) throw Error("{}: the answer is HTTP status {}", url, answer.status);
  MetricsPage page = std::move(parse_metrics(answer.body, url).front());
  // Histories of many scrapes hold only what is read.
  std::erase_if(page.samples, [](const MetricSample& sample) {
    return !sample.name.starts_with("process_") &&
           metrics_name(sample.name).family == MetricsFamily::none;
  });
  return page;
}

}  // namespace

std::vector<MetricsPage> sample_metrics(const std::string& url, double for_s, double every_s,
                                        const std::function<bool(double)>& tick) {
  HttpTarget target = parse_http_target(url);
  if (target.path.empty()) target.path = "/metrics";
  const std::string address = target.url();
  for_s = std::max(for_s, kSoonestScrape);
  every_s = std::clamp(every_s, std::max(for_s / kMostScrapes, kSoonestScrape), for_s);
  HttpClient client(target, {.allow_remote = true, .timeout_s = kPageSeconds, .api_key = {}});
  std::vector<MetricsPage> pages;
  const LiveClock::time_point start = LiveClock::now();
  // Unix time, which the page's process_start_time_seconds is in; no clock change disturbs it.
  const double epoch =
      std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  std::string failure;
  for (double next = 0;; next = std::max(next + every_s, seconds_since(start))) {
    next = std::min(next, std::max(for_s, seconds_since(start)));
    std::this_thread::sleep_until(start + std::chrono::duration_cast<LiveClock::duration>(
                                              std::chrono::duration<double>(next)));
    const double before = seconds_since(start);
    try {
      MetricsPage page = scrape_page(client, address);
      page.time_s = epoch + (before + seconds_since(start)) / 2;
      pages.push_back(std::move(page));
    } catch (const Error& error) {
      if (pages.empty()) throw;
      failure = error.what();  // a busy server may miss one
    }
    const double gone = seconds_since(start);
    if (tick && !tick(gone)) break;
    if (before >= for_s && (pages.size() > 1 || !failure.empty())) break;
  }
  if (pages.size() < 2 && !failure.empty()) throw Error("{}", failure);
  if (!failure.empty()) pages.back().notes.push_back("a scrape failed: " + failure);
  return pages;
}

}  // namespace ridge
