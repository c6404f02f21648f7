// Lines that engines log while they serve, and what they say together.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "diagnose/evidence.h"
#include "diagnose/readers/engine_arguments.h"

namespace ridge {

// Collects the lines of one engine.
class EngineLogCollector {
 public:
  virtual ~EngineLogCollector() = default;
  // A line without colours. True where it is one of this engine's.
  virtual bool take(std::string_view line) = 0;
  // Adds what was seen to the file.
  virtual void finish(EvidenceFile& file) = 0;
};

std::unique_ptr<EngineLogCollector> make_vllm_log();
std::unique_ptr<EngineLogCollector> make_sglang_log();
std::unique_ptr<EngineLogCollector> make_llama_log();  // llama.cpp
std::unique_ptr<EngineLogCollector> make_ollama_log();
std::unique_ptr<EngineLogCollector> make_tgi_log();

// Settings that were saved as JSON; nullopt where the text is no such file. read_engine_log() tries
// it first.
std::optional<EvidenceFile> read_run_settings(std::string_view text, const std::string& name);

// --- What the collectors share.

// The number after the first occurrence of `mark`.
std::optional<double> number_after(std::string_view line, std::string_view mark);

// "1.5s", "25.6ms", "12.3µs" after the first occurrence of `mark`, in seconds.
std::optional<double> duration_after(std::string_view line, std::string_view mark);

// Values of one figure over the lines of a log.
class LogFigure {
 public:
  void add(const std::optional<double>& value);
  bool empty() const { return values_.empty(); }
  size_t count() const { return values_.size(); }
  double mean() const;  // of at least one value, as the others
  double median() const;
  double lowest() const;
  double highest() const;
  double last() const { return values_.back(); }
  double sum() const;

 private:
  std::vector<double> values_;
};

// The time of day in a log prefix; spans across midnight are taken as less than a day.
class LogClock {
 public:
  void see(std::string_view line);
  double span_s() const;  // from the first to the last line seen; 0: no times

 private:
  std::optional<double> first_, last_;
};

// Adds arguments that the log tells to the setup and the limits among them.
void add_log_arguments(const EngineArguments& arguments, EvidenceFile& file);

}  // namespace ridge
