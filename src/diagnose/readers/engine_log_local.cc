// Logs that time each request: llama.cpp's server and command line, Ollama, TGI.
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "base/dtype.h"
#include "base/error.h"
#include "base/units.h"
#include "diagnose/readers/engine_log.h"
#include "diagnose/readers/json_records.h"

namespace ridge {
namespace {

using Q = Quantity;

std::string text_after(std::string_view line, std::string_view mark) {
  const size_t at = line.find(mark);
  if (at == line.npos) return {};
  std::string_view rest = line.substr(at + mark.size());
  rest.remove_prefix(std::min(rest.find_first_not_of(" ="), rest.size()));
  while (!rest.empty() && rest.back() == ' ') rest.remove_suffix(1);
  return std::string(rest.substr(0, 120));
}

// "Q4_K - Medium" -> "q4_k_m".
std::string format_of_file_type(std::string type) {
  const bool medium = type.find("- Medium") != type.npos;
  type.resize(std::min(type.find(' '), type.size()));
  try {
    if (medium) return format_from_name(type + "_m").name;
  } catch (const Error&) {
  }
  try {
    return format_from_name(type).name;
  } catch (const Error&) {
    return {};
  }
}

class LlamaLog : public EngineLogCollector {
 public:
  bool take(std::string_view line) override {
    const auto slot = number_after(line, "print_timing: id");
    if (slot && slots_.size() < kMostEngines) slots_.insert(*slot);
    return timing(line) || loading(line) || slot;
  }

  void finish(EvidenceFile& file) override {
    file.kind = "llama.cpp log";
    file.setup = setup_;
    file.setup.engine = "llama.cpp";
    file.window = fmt::format("{} timed requests", requests_);
    if (layers_ > 0) file.setup.offloaded = std::clamp(1 - on_device_ / layers_, 0., 1.);
    if (slots_configured_ > 0) {
      file.add(Q::max_running, slots_configured_, Trust::window, "n_slots");
    }
    const bool one_at_a_time = slots_.size() <= 1;
    if (output_tokens_ > 0 && output_s_ > 0) {
      const double itl = output_s_ / output_tokens_;
      file.add(Q::itl, itl, Trust::window, "eval time / tokens");
      if (requests_ > 0) {
        file.add(Q::output, output_tokens_ / double(requests_), Trust::window, "eval tokens");
        file.add(Q::requests, double(requests_), Trust::window, "eval time lines");
      }
      if (one_at_a_time) {
        file.add(Q::tokens_per_s, 1 / itl, Trust::window, "eval tokens per second");
        file.add(Q::batch, 1, Trust::window, "one slot is used");
      } else {
        file.notes.push_back(
            fmt::format("{} slots are used: how many at once is not in the log, so "
                        "that tokens/s of the server are not known",
                        slots_.size()));
      }
    }
    if (prompts_ > 0 && prompt_tokens_ > 0) {
      file.add(Q::prompt, prompt_tokens_ / double(prompts_), Trust::window, "prompt eval tokens");
      file.add(Q::prefill_time, prompt_s_ / double(prompts_), Trust::window, "prompt eval time");
    }
    if (!drafts_.empty()) {
      file.notes.push_back(fmt::format("draft acceptance rate {}", pretty_percent(drafts_.mean())));
    }
  }

 private:
  // "prompt eval time =   123.45 ms /   512 tokens (..", "eval time = .. ms / 127 runs (..".
  bool timing(std::string_view line) {
    if (const auto rate = number_after(line, "draft acceptance rate = ")) {
      drafts_.add(rate);
      return true;
    }
    const size_t at = line.find("eval time =");
    if (at == line.npos) return false;
    const auto ms = number_after(line, "eval time =");
    const auto tokens = number_after(line, " ms /");
    if (!ms || !tokens || *ms < 0 || *tokens <= 0) return false;
    if (line.substr(0, at).ends_with("prompt ")) {
      ++prompts_;
      prompt_s_ += *ms * 1e-3;
      prompt_tokens_ += *tokens;
    } else {
      ++requests_;
      output_s_ += *ms * 1e-3;
      output_tokens_ += *tokens;
    }
    return true;
  }

  bool loading(std::string_view line) {
    if (const auto layers = number_after(line, "offloaded ");
        layers && line.find("layers to GPU") != line.npos) {
      on_device_ = *layers;
      layers_ = number_after(line.substr(line.find("offloaded ")), "/").value_or(0);
      return true;
    }
    const bool meta =
        line.find("print_meta:") != line.npos || line.find("print_info:") != line.npos;
    if (const size_t equals = line.find('=');
        meta && equals != line.npos && line.find("size") < equals) {
      const double unit = line.find("GiB") != line.npos   ? 0x1p30
                          : line.find("MiB") != line.npos ? 0x1p20
                                                          : 0;
      if (unit == 0) return false;
      setup_.weight_bytes = leading_number(line.substr(equals + 1)).value_or(0) * unit;
      return true;
    }
    if (meta && line.find("general.name") != line.npos) {
      setup_.model = text_after(line, "general.name");
      return true;
    }
    for (const std::string_view mark : {"file type", "model ftype"}) {
      if (meta && line.find(mark) != line.npos) {
        setup_.weights = format_of_file_type(text_after(line, mark));
        return true;
      }
    }
    if (const size_t at = line.find("Device 0: ");
        at != line.npos && line.find("compute capability") != line.npos) {
      const std::string device = text_after(line, "Device 0: ");
      setup_.device = device.substr(0, device.find(','));
      return true;
    }
    if (const auto slots = number_after(line, "n_slots = ")) {
      slots_configured_ = *slots;
      return true;
    }
    return false;
  }

  RunSetup setup_;
  size_t requests_ = 0, prompts_ = 0;
  double prompt_s_ = 0, prompt_tokens_ = 0, output_s_ = 0, output_tokens_ = 0;
  double on_device_ = 0, layers_ = 0, slots_configured_ = 0;
  std::set<double> slots_;
  LogFigure drafts_;
};

// What `ollama run --verbose` prints after each answer, and `ollama ps`.
class OllamaLog : public EngineLogCollector {
 public:
  bool take(std::string_view line) override {
    const size_t first = line.find_first_not_of(" \t");
    if (first == line.npos) return false;
    line.remove_prefix(first);
    if (line.starts_with("prompt eval rate:")) {
      prompt_rate_.add(number_after(line, "prompt eval rate:"));
    } else if (line.starts_with("prompt eval count:")) {
      prompt_.add(number_after(line, "prompt eval count:"));
    } else if (line.starts_with("eval rate:")) {
      rate_.add(number_after(line, "eval rate:"));
    } else if (line.starts_with("eval count:")) {
      output_.add(number_after(line, "eval count:"));
    } else {
      return loaded(line);
    }
    return true;
  }

  void finish(EvidenceFile& file) override {
    file.kind = "Ollama timings";
    file.setup = setup_;
    file.setup.engine = "ollama";
    file.window = fmt::format("{} answers", rate_.count());
    if (!rate_.empty() && rate_.mean() > 0) {
      file.add(Q::tokens_per_s, rate_.mean(), Trust::window, "eval rate");
      file.add(Q::itl, 1 / rate_.mean(), Trust::window, "1 / eval rate");
      file.add(Q::batch, 1, Trust::window, "one request at a time");
    }
    if (!prompt_.empty()) file.add(Q::prompt, prompt_.mean(), Trust::window, "prompt eval count");
    if (!output_.empty()) file.add(Q::output, output_.mean(), Trust::window, "eval count");
    if (!prompt_rate_.empty() && !prompt_.empty() && prompt_rate_.mean() > 0) {
      file.add(Q::prefill_time, prompt_.mean() / prompt_rate_.mean(), Trust::window,
               "prompt eval count / rate");
    }
  }

 private:
  // "llama3:70b  be39eb53a197  41 GB  42%/58% CPU/GPU  4 minutes from now", "100% GPU", "100% CPU".
  bool loaded(std::string_view line) {
    const size_t both = line.find("% CPU/GPU"), cpu = line.find("100% CPU");
    const size_t gpu = line.find("100% GPU");
    if (both == line.npos && cpu == line.npos && gpu == line.npos) return false;
    if (line.find(" GB ") == line.npos && line.find(" MB ") == line.npos) return false;
    setup_.model = std::string(line.substr(0, std::min<size_t>(line.find(' '), 120)));
    setup_.offloaded = cpu != line.npos ? 1 : 0;
    if (both != line.npos) {
      // The shares of CPU and GPU stand before it.
      const size_t begin = line.rfind(' ', both) + 1;
      setup_.offloaded = std::clamp(leading_number(line.substr(begin)).value_or(0) / 100, 0., 1.);
    }
    return true;
  }

  RunSetup setup_;
  LogFigure rate_, prompt_rate_, prompt_, output_;
};

// One line for each request: total_time="1.5s" .. queue_time="3ms" .. time_per_token="25ms".
class TgiLog : public EngineLogCollector {
 public:
  bool take(std::string_view line) override {
    const auto token = duration_after(line, "time_per_token=\"");
    if (!token) return false;
    token_.add(token);
    queue_.add(duration_after(line, "queue_time=\""));
    total_.add(duration_after(line, "total_time=\""));
    return true;
  }

  void finish(EvidenceFile& file) override {
    file.kind = "TGI log";
    file.setup.engine = "tgi";
    file.window = fmt::format("{} requests", token_.count());
    file.add(Q::itl, token_.mean(), Trust::window, "time_per_token");
    file.add(Q::requests, double(token_.count()), Trust::window, "lines with time_per_token");
    if (!queue_.empty()) file.add(Q::queue_time, queue_.mean(), Trust::window, "queue_time");
    if (!total_.empty()) file.add(Q::e2e, total_.mean(), Trust::window, "total_time");
  }

 private:
  LogFigure token_, queue_, total_;
};

}  // namespace

std::unique_ptr<EngineLogCollector> make_llama_log() { return std::make_unique<LlamaLog>(); }
std::unique_ptr<EngineLogCollector> make_ollama_log() { return std::make_unique<OllamaLog>(); }
std::unique_ptr<EngineLogCollector> make_tgi_log() { return std::make_unique<TgiLog>(); }

}  // namespace ridge
