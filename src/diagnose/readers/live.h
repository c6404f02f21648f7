// Samples a live /metrics endpoint.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "diagnose/readers/metrics_page.h"

namespace ridge {

// Scrapes `url` (http://host:port/metrics) every `every_s` seconds for `for_s` seconds, at least
// twice. `tick` is called after each scrape with the seconds gone; returning false ends early.
// Throws Error where the endpoint does not answer.
std::vector<MetricsPage> sample_metrics(const std::string& url, double for_s, double every_s,
                                        const std::function<bool(double)>& tick);

}  // namespace ridge
