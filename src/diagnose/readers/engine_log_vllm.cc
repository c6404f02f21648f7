// vLLM's log: one line of rates every few seconds, its configuration at the start.
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "base/error.h"
#include "base/units.h"
#include "diagnose/readers/engine_log.h"
#include "diagnose/readers/json_records.h"

namespace ridge {
namespace {

using Q = Quantity;

constexpr double kVllmBlockTokens = 16;  // the default block size

class VllmLog : public EngineLogCollector {
 public:
  bool take(std::string_view line) override {
    return rates(line) || speculation(line) || configuration(line) || cache(line) ||
           prefix_hits(line) || preemption(line);
  }

  void finish(EvidenceFile& file) override {
    file.kind = "vLLM log";
    file.setup.engine = "vllm";
    file.setup.version = version_;
    if (!file.setup.eager && captured_) file.setup.eager = false;
    if (eager_) file.setup.eager = true;
    add_log_arguments(arguments_, file);
    const double window = clock_.span_s();
    file.window = window > 0 ? fmt::format("{} of log lines", pretty_time(window)) : "log lines";
    // Data-parallel engines log for themselves: their rates and requests add up.
    const double engines = std::max<double>(1, double(engines_.size()));
    if (engines_.size() > kMostEngines) {
      throw Error("{}: a log of more than {} engines", file.path, kMostEngines);
    }
    if (engines > 1) {
      file.setup.dp = static_cast<int>(engines);
      file.notes.push_back(
          fmt::format("{} engines log: their rates and requests are added", engines_.size()));
    }
    const auto add = [&](Q q, const LogFigure& figure, double scale, const char* origin) {
      if (!figure.empty()) {
        file.add(q, figure.mean() * scale, Trust::window, origin, window);
      }
    };
    add(Q::tokens_per_s, output_, engines, "Avg generation throughput");
    add(Q::prompt_tokens_per_s, prompt_, engines, "Avg prompt throughput");
    add(Q::running, running_, engines, "Running");
    add(Q::waiting, waiting_, engines, "Waiting");
    add(Q::kv_usage, kv_, 0.01, "GPU KV cache usage");
    if (!hits_.empty()) {
      file.add(Q::prompt_hit, hits_.last() * 0.01, Trust::window, "Prefix cache hit rate", window);
    }
    add(Q::accepted, accepted_, 1, "Mean acceptance length - 1");
    add(Q::drafted, drafted_, 1, "Per-position acceptance rate: positions");
    const double preempted = std::max(preempted_, cumulative_);
    if (lines_ > 0 || preempted > 0) {
      file.add(Q::preemptions, preempted, Trust::window, "preemption warnings", window);
    }
    if (lines_ > 0) {
      file.notes.push_back(
          fmt::format("{} of {} lines with rates have running requests; idle ones are left out",
                      running_.count(), lines_));
    }
    if (kv_tokens_ > 0) {
      file.add(Q::kv_tokens, kv_tokens_ * engines, Trust::window, kv_origin_);
    }
    if (!running_.empty() && running_.highest() > 2 * running_.lowest() + 4) {
      file.notes.push_back(
          fmt::format("the running requests change from {:g} to {:g}: means are "
                      "over different loads",
                      running_.lowest(), running_.highest()));
    }
  }

 private:
  bool rates(std::string_view line) {
    constexpr std::string_view kRates = "Avg prompt throughput:";
    const size_t at = line.find(kRates);
    if (at == line.npos) return false;
    ++lines_;
    constexpr std::string_view kEngine = "Engine ";
    if (const size_t engine = line.rfind(kEngine, at);
        engine != line.npos && at - engine < 16 && engines_.size() <= kMostEngines) {
      engines_.insert(std::string(line.substr(engine, at - engine)));
    }
    const auto running = number_after(line, "Running: ");
    const auto waiting_now = number_after(line, "Waiting: ");
    const auto waiting = waiting_now ? waiting_now : number_after(line, "Pending: ");
    const auto output = number_after(line, "generation throughput: ");
    if (running.value_or(0) + waiting.value_or(0) <= 0) return true;
    clock_.see(line);
    running_.add(running);
    waiting_.add(waiting.value_or(0) + number_after(line, "Swapped: ").value_or(0));
    output_.add(output);
    prompt_.add(number_after(line, kRates));
    kv_.add(number_after(line, "KV cache usage: "));
    preempted_ += number_after(line, "Preemptions: ").value_or(0);
    hits_.add(number_after(line, "Prefix cache hit rate: "));
    return true;
  }

  // Version 0 has a line of its own.
  bool prefix_hits(std::string_view line) {
    const auto hit = number_after(line, "Prefix cache hit rate: GPU: ");
    hits_.add(hit);
    return hit.has_value();
  }

  bool speculation(std::string_view line) {
    const auto length = number_after(line, "Mean acceptance length: ");
    if (!length) return false;
    accepted_.add(*length - 1);
    // As many positions as tokens are drafted.
    constexpr std::string_view kPositions = "Per-position acceptance rate: ";
    if (const size_t at = line.find(kPositions); at != line.npos) {
      std::string_view rest = line.substr(at + kPositions.size());
      rest = rest.substr(0, rest.find("Avg"));
      drafted_.add(double(std::count(rest.begin(), rest.end(), '.')));
    }
    return true;
  }

  bool configuration(std::string_view line) {
    if (line.find("LLM engine (v") != line.npos) {
      const size_t at = line.find("(v") + 2;
      version_ = std::string(line.substr(at, std::min<size_t>(line.find(')', at) - at, 40)));
      if (line.find("config:") == line.npos) return true;
    } else if (line.find("non-default args: ") == line.npos &&
               line.find("max_num_seqs=") == line.npos) {
      return graphs(line);
    }
    for (const auto& [key, value] : parse_arguments(line)) arguments_.insert_or_assign(key, value);
    graph_sizes(line);
    return true;
  }

  // 'cudagraph_capture_sizes': [512, 504, ..]
  void graph_sizes(std::string_view line) {
    size_t at = line.find("cudagraph_capture_sizes");
    if (at == line.npos || (at = line.find('[', at)) == line.npos) return;
    double largest = 0;
    const size_t end = std::min(line.find(']', at), line.size());
    for (size_t next = at; at < end; at = next) {
      next = std::min(line.find(',', at + 1), end);
      largest = std::max(largest, leading_number(line.substr(at + 1, next - at - 1)).value_or(0));
    }
    if (largest > 0) arguments_.insert_or_assign("max_capture_size", fmt::format("{:g}", largest));
  }

  bool graphs(std::string_view line) {
    if (line.find("Graph capturing finished") != line.npos ||
        line.find("Capturing CUDA graph") != line.npos ||
        line.find("Capturing cudagraphs") != line.npos) {
      captured_ = true;
      return true;
    }
    if (line.find("udagraph is disabled under eager mode") != line.npos ||
        line.find("CUDA graph is not supported") != line.npos) {
      eager_ = true;
      return true;
    }
    return false;
  }

  bool cache(std::string_view line) {
    if (const auto tokens = number_after(line, "KV cache size: ");
        tokens && line.find("tokens") != line.npos) {
      kv_tokens_ = *tokens;
      kv_origin_ = "GPU KV cache size";
      return true;
    }
    if (const auto blocks = number_after(line, "GPU blocks: ")) {
      kv_tokens_ = *blocks * kVllmBlockTokens;
      kv_origin_ = "# GPU blocks x 16 tokens";
      return true;
    }
    return false;
  }

  bool preemption(std::string_view line) {
    if (line.find("preempted by") == line.npos) return false;
    preempted_ += 1;
    for (const char* mark : {"cumulative_preemption_cnt=", "cumulative_preemption="}) {
      cumulative_ = std::max(cumulative_, number_after(line, mark).value_or(0));
    }
    return true;
  }

  LogFigure output_, prompt_, running_, waiting_, kv_, hits_, accepted_, drafted_;
  size_t lines_ = 0;
  double preempted_ = 0, cumulative_ = 0, kv_tokens_ = 0;
  bool captured_ = false, eager_ = false;
  std::string version_;
  const char* kv_origin_ = "";
  std::set<std::string> engines_;
  EngineArguments arguments_;
  LogClock clock_;
};

}  // namespace

std::unique_ptr<EngineLogCollector> make_vllm_log() { return std::make_unique<VllmLog>(); }

}  // namespace ridge
