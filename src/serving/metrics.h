// What the serving engine reports, as Prometheus metrics: vLLM's names and buckets, so that its
// dashboards work, and Ridge's own under `ridge:` (docs/serving-metrics.md lists both).
#pragma once

#include <memory>
#include <string>

#include "serving/observer.h"

namespace ridge {

struct MetricsOptions {
  std::string model_name = {};  // the label model_name
  int engine = 0;               // the label engine
  int page_tokens = 0;          // of one KV page
  int pages = 0;                // of the pool
  int max_context = 0;          // tokens of one request; the largest bucket of the token counts
  int max_sequences = 0;        // running at once
  bool prefix_cache = true;
  // As the predictor names them; empty: not known.
  std::string model = {}, device = {}, weights = {}, kv = {};
};

// Every member may be called from any thread while another runs text(). The on_* members take well
// under a microsecond (tests/serving/metrics_test.cc measures them).
class ServingMetrics final : public ServingObserver {
 public:
  // `beside`: the metrics of another replica of this model, with another number. text() of either
  // then has the metrics of both, apart by the label engine.
  explicit ServingMetrics(const MetricsOptions& options, const ServingMetrics* beside = nullptr);
  ~ServingMetrics() override;

  void on_step(const StepReport& report) override;
  // Several tokens of one step share its time equally: the number of latencies is the number of
  // tokens, with and without speculation.
  void on_tokens(int tokens, double seconds) override;
  void on_first_token(double seconds) override;
  void on_prefix_lookup(int prompt_tokens, int cached_tokens) override;
  void on_finished(const RequestReport& report) override;
  // An API request of n choices has ended; its longest choice has this many tokens. The engine sees
  // each choice as a request of its own, so the API reports this.
  void on_api_finished(int n, int max_generated_tokens);
  void on_engine_failed();

  // The Prometheus text format, version 0.0.4. About 1 ms.
  std::string text() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

inline constexpr const char* kMetricsContentType = "text/plain; version=0.0.4; charset=utf-8";

}  // namespace ridge
