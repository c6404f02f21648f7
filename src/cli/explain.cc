// ridge explain: my endpoint does X. Which wall is that, what would each lever gain, what comes
// next? From numbers and from files.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "base/error.h"
#include "base/units.h"
#include "cli/command.h"
#include "cli/explain_text.h"
#include "cli/interrupt.h"
#include "cli/options.h"
#include "diagnose/explain_options.h"
#include "diagnose/json.h"

namespace ridge {
namespace {

constexpr const char* kExplainExamples = R"(Examples:
  ridge explain metrics.prom dcgm.prom result.json
  ridge explain before.prom after.prom -M 8xh100-sxm
  ridge explain http://127.0.0.1:8000/metrics --for 30s -M h100-sxm
  ridge explain trace.json.gz
  ridge explain -m llama-3-70b -M 8xh100-sxm --observed 280tok/s --batch 8
  ridge explain -m llama-3-8b -M h100-sxm --itl 9ms --batch 16 --dram-active 0.72 --tensor-active 0.06
  ridge explain -m qwen3-32b -M 2xh100-sxm --ttft 900ms --prompt 8192
Files are recognised by their content: Prometheus pages of vLLM, SGLang, TensorRT-LLM, TGI, llama.cpp,
NIM, Ray and Ridge, dcgm-exporter, nvidia-smi, PyTorch traces, Nsight Systems and Compute, results of
benchmarks, engine logs. Model and machine are taken from the files where they are there.
Counters are those of DCGM (DRAM_ACTIVE, PIPE_TENSOR_ACTIVE), from 0 to 1.)";

// While a live endpoint is sampled: the seconds gone, on a terminal. Ctrl-C ends the sampling, and
// what was seen until then is judged.
Diagnosis explain_with_progress(ExplainOptions& o) {
  const bool live = std::any_of(o.files.begin(), o.files.end(), [](const std::string& file) {
    return file.starts_with("http://") || file.starts_with("https://");
  });
  if (!live) return explain(o);
  const InterruptScope interrupt;
  const bool shown = isatty(STDERR_FILENO) != 0;
  o.tick = [&](double seconds) {
    if (shown) fmt::print(stderr, "\rsampling, {:.0f} s ", seconds);
    if (shown) std::fflush(stderr);
    return !interrupt.flag();
  };
  Diagnosis d = explain(o);
  if (shown) fmt::print(stderr, "\r\033[K");
  return d;
}

}  // namespace

void add_stated_options(CLI::App& command, StatedOptions& stated, bool with_batch) {
  for (const QuantityInfo& about : all_quantities()) {
    if (!about.option || (!with_batch && about.quantity == Quantity::batch)) continue;
    std::string names = std::string("--") + about.option;
    if (about.quantity == Quantity::batch) names += ",-b";
    if (about.quantity == Quantity::itl) names += ",--tpot";  // the benchmarks' word
    command.add_option(names, stated[about.quantity], about.help)->group("What you see");
  }
}

void add_explain_files(CLI::App& command, ExplainOptions& options) {
  command.add_option("--window", options.window,
                     "Time between two snapshots, where the files do not say: 30s");
  command.add_option("--for", options.sample, "How long a live endpoint is sampled (default 30s)");
}

void add_explain_command(CLI::App& app, Global& global) {
  auto o = std::make_shared<ExplainOptions>();
  auto most = std::make_shared<int>(8);
  CLI::App* command = app.add_subcommand(
      "explain",
      "My endpoint does X: which wall is that, what would each lever gain, what comes next?");
  command->add_option("files", o->files,
                      "Evidence: metrics, traces, profiles, results, logs; or a /metrics URL");
  add_request_options(*command, o->request, EndpointOptions::left_out);
  command->remove_option(command->get_option("--batch"));
  add_stated_options(*command, o->stated, true);
  add_explain_files(*command, *o);
  command->add_option("--levers", *most, "How many levers to print")
      ->check(CLI::Range(0, 1000))
      ->group("Output");
  command->footer(kExplainExamples);
  command->callback([o, most, command, &global] {
    Diagnosis d = explain_with_progress(*o);
    if (d.run.expected) check_experts(*command, {&d.run.expected->request, 1});
    if (global.json) {
      if (command->count("--levers") > 0 && d.levers.size() > size_t(*most)) {
        d.levers.resize(size_t(*most));
      }
      fmt::print("{}\n", to_json(d).dump(2, ' ', false, Json::error_handler_t::replace));
    } else {
      print_diagnosis(d, *most);
    }
  });
}

}  // namespace ridge
