// SGLang's log: a line every forty decode steps, one for each prefill batch.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "base/units.h"
#include "diagnose/readers/engine_log.h"
#include "diagnose/readers/json_records.h"

namespace ridge {
namespace {

using Q = Quantity;

class SglangLog : public EngineLogCollector {
 public:
  bool take(std::string_view line) override {
    return decode(line) || prefill(line) || retracted(line) || configuration(line);
  }

  void finish(EvidenceFile& file) override {
    file.kind = "SGLang log";
    file.setup.engine = "sglang";
    add_log_arguments(arguments_, file);
    const double window = clock_.span_s();
    file.window = window > 0 ? fmt::format("{} of log lines", pretty_time(window)) : "log lines";
    const double ranks = std::max<double>(1, double(ranks_.size()));
    if (ranks > 1) {
      file.notes.push_back(
          fmt::format("{} data-parallel ranks log: rates and requests are added", ranks_.size()));
    }
    const auto add = [&](Q q, double value, const char* origin) {
      file.add(q, value, Trust::window, origin, window);
    };
    // The first line after a pause counts the pause into its rate: a median does not see it.
    if (!output_.empty()) {
      add(Q::tokens_per_s, output_.median() * ranks,
          "gen throughput, median of Decode batch lines");
    }
    if (!running_.empty()) {
      add(Q::running, running_.mean() * ranks, "#running-req of Decode batch lines");
      add(Q::batch, running_.mean() * ranks, "#running-req of Decode batch lines");
      file.notes.push_back(
          fmt::format("{} Decode batch and {} Prefill batch lines", running_.count(), prefills_));
      if (running_.highest() > 2 * running_.lowest() + 4) {
        file.notes.push_back(
            fmt::format("the running requests change from {:g} to {:g}: means are "
                        "over different loads",
                        running_.lowest(), running_.highest()));
      }
    }
    if (!waiting_.empty()) add(Q::waiting, waiting_.mean() * ranks, "#queue-req");
    if (!usage_.empty()) add(Q::kv_usage, std::min(1., usage_.mean()), "token usage");
    if (!graph_.empty()) add(Q::graph_share, graph_.mean(), "cuda graph");
    if (!accepted_.empty()) add(Q::accepted, accepted_.mean(), "accept len - 1");
    if (!drafted_.empty()) add(Q::drafted, drafted_.median(), "accept len / accept rate - 1");
    const double prompts = fresh_ + cached_;
    if (prompts > 0) {
      add(Q::prompt_hit, cached_ / prompts, "#cached-token / (#new-token + #cached-token)");
      if (window >= 2) add(Q::prompt_tokens_per_s, prompts / window, "#new-token + #cached-token");
    }
    if (!running_.empty() || prefills_ > 0) {
      add(Q::preemptions, retracted_, "#retracted_reqs");
    }
  }

 private:
  void see_rank(std::string_view line, size_t before) {
    const size_t at = line.substr(0, before).find(" DP");
    if (at != line.npos) ranks_.insert(std::string(line.substr(at, line.find(' ', at + 1) - at)));
  }

  bool decode(std::string_view line) {
    const size_t at = line.find("Decode batch");
    if (at == line.npos) return false;
    const auto running = number_after(line, "#running-req: ");
    if (!running) return false;
    see_rank(line, at);
    if (*running <= 0) return true;
    clock_.see(line);
    running_.add(running);
    output_.add(number_after(line, "gen throughput (token/s): "));
    usage_.add(number_after(line, "token usage: "));
    waiting_.add(number_after(line, "#queue-req: "));
    if (const auto length = number_after(line, "accept len: ")) {
      accepted_.add(*length - 1);
      // The rate is the length over the tokens that a step verifies: the drafts and the one before.
      const double rate = number_after(line, "accept rate: ").value_or(0);
      if (rate > 0 && rate <= 1) drafted_.add(std::max(0., std::round(*length / rate) - 1));
    }
    if (line.find("cuda graph: True") != line.npos) graph_.add(1);
    if (line.find("cuda graph: False") != line.npos) graph_.add(0);
    return true;
  }

  bool prefill(std::string_view line) {
    if (line.find("Prefill batch") == line.npos) return false;
    const auto fresh = number_after(line, "#new-token: ");
    if (!fresh) return false;
    ++prefills_;
    clock_.see(line);
    fresh_ += std::max(0., *fresh);
    cached_ += std::max(0., number_after(line, "#cached-token: ").value_or(0));
    return true;
  }

  bool retracted(std::string_view line) {
    if (line.find("etract") == line.npos) return false;
    const auto requests = number_after(line, "#retracted_reqs: ");
    if (!requests && line.find("KV cache pool is full") == line.npos) return false;
    retracted_ += std::max(0., requests.value_or(1));
    return true;
  }

  bool configuration(std::string_view line) {
    if (line.find("ServerArgs(") == line.npos && line.find("max_total_num_tokens=") == line.npos) {
      // "Capture cuda graph bs [1, 2, 4, 8]"
      const size_t sizes = line.find("Capture cuda graph bs [");
      if (sizes == line.npos) return false;
      const size_t end = std::min(line.find(']', sizes), line.size());
      const size_t last = std::max(line.rfind(',', end), sizes + 22);
      const auto largest = leading_number(line.substr(last + 1, 8));
      if (largest) arguments_.insert_or_assign("cuda_graph_max_bs", fmt::format("{:g}", *largest));
      return true;
    }
    constexpr std::string_view kArguments = "ServerArgs(";
    const size_t begin = line.find(kArguments);
    if (begin != line.npos) line.remove_prefix(begin + kArguments.size());
    for (const auto& [key, value] : parse_arguments(line)) {
      if (value != "None") arguments_.insert_or_assign(key, value);
    }
    return true;
  }

  LogFigure output_, running_, waiting_, usage_, graph_, accepted_, drafted_;
  size_t prefills_ = 0;
  double fresh_ = 0, cached_ = 0, retracted_ = 0;
  std::set<std::string> ranks_;
  EngineArguments arguments_;
  LogClock clock_;
};

}  // namespace

std::unique_ptr<EngineLogCollector> make_sglang_log() { return std::make_unique<SglangLog>(); }

}  // namespace ridge
