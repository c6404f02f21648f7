// Scrapes of one run, oldest first, as observations: differences of counters and histograms over
// the window, means of gauges. One scrape gives averages since the server's start.
#pragma once

#include <span>
#include <vector>

#include "diagnose/evidence.h"
#include "diagnose/readers/metrics_page.h"

namespace ridge {

// One EvidenceFile for each engine and for the device counters (dcgm-exporter) that the pages hold.
// `window_s` is the time between the first and the last page, where it was given; else the pages'
// own times. Throws Error where no metric is known.
std::vector<EvidenceFile> observe_metrics(std::span<const MetricsPage> pages, double window_s);

}  // namespace ridge
