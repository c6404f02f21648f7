// ridge explain: my endpoint does X. Which wall is that, what would each lever gain, what comes
// next?
#include <fmt/format.h>

#include "base/error.h"
#include "base/text.h"
#include "base/units.h"
#include "cli/command.h"
#include "cli/options.h"
#include "cli/predict_text.h"
#include "predict/json.h"
#include "predict/observe.h"

namespace ridge {
namespace {

constexpr const char* kExplainExamples = R"(Examples:
  ridge explain -m llama-3-70b -M 8xh100-sxm --observed 280tok/s --batch 8
  ridge explain -m llama-3-70b -M 8xh100-sxm --observed 280tok/s --gpu-util 0.38
  ridge explain -m llama-3-8b -M h100-sxm --itl 9ms --batch 16 --dram-active 0.72 --tensor-active 0.06
  ridge explain -m qwen3-32b -M 2xh100-sxm --ttft 900ms --prompt 8192
Counters are those of DCGM (DRAM_ACTIVE, PIPE_TENSOR_ACTIVE), from 0 to 1.)";

struct ExplainOptions {
  RequestOptions request;
  ObservedOptions seen;
  int most = 8;
};

void print_evidence(const Explanation& x) {
  const auto section = [&](Bearing bearing, const char* title, const char* mark) {
    bool first = true;
    for (const Evidence& e : x.evidence) {
      if (e.bearing != bearing) continue;
      if (first) fmt::print("\n{}\n", paint(Colour::bold, title));
      first = false;
      fmt::print("  {} {}\n", mark, e.text);
    }
  };
  section(Bearing::supports, "Evidence for it", "+");
  section(Bearing::contradicts, "Against it, or other causes", "-");
  section(Bearing::missing, "Not observed; would decide it", "?");
}

void print_levers(const Explanation& x, int most) {
  Table table({"lever", "tok/s per device", "per token", "TTFT", "next wall", "why"});
  for (size_t i = 0; i < std::min(size_t(most), x.levers.size()); ++i) {
    const Lever& l = x.levers[i];
    const auto times = [](double v) { return fmt::format("x{:.2f}", v); };
    table.add({l.name, times(l.gain), pretty_time(l.tpot_s), times(l.ttft_gain),
               std::string(wall_name(l.next_wall)), l.note});
  }
  fmt::print("\n{}\n{}", paint(Colour::bold, "Levers, by predicted gain"), table.text());
}

void print_explanation(const Request& r, const Explanation& x, int most) {
  const Prediction& p = x.prediction;
  fmt::print("{}\n\n", paint(Colour::bold, x.sentence));
  Table table({"", "per step", "tok/s", "MBU", "MFU"});
  const auto row = [&](const std::string& name, double seconds) {
    const double tokens = x.batch * p.tokens_per_step / seconds;
    const double scale = p.decode.expected_s / seconds;
    table.add({name, pretty_time(seconds), pretty_number(tokens),
               pretty_percent(p.decode.mbu * scale), pretty_percent(p.decode.mfu * scale)});
  };
  row("roof", p.decode.roof_s);
  row(fmt::format("expected, {}", stack_words(r)), p.decode.expected_s);
  row(fmt::format("observed, batch {:.0f}", x.batch), x.step_s);
  fmt::print("{}", table.text());
  fmt::print("verdict {}, wall {}, next wall {} ({} on {})\n",
             paint(Colour::bold, verdict_name(x.verdict)), wall_name(x.wall),
             wall_name(x.next_wall), r.model->name, r.system.name());
  print_evidence(x);
  print_levers(x, most);
}

void print_prefill(const Request& r, const Explanation& x, int most) {
  const Prediction& p = x.prediction;
  fmt::print("{}\n\nprefill of {:.0f} tokens on {}, {}: roof {}, expected {} - {}, observed {}\n",
             paint(Colour::bold, x.sentence), r.prompt, r.system.name(), stack_words(r),
             pretty_time(p.prefill.roof_s), pretty_time(p.prefill.low_s),
             pretty_time(p.prefill.high_s), pretty_time(x.step_s));
  fmt::print("verdict {}, wall {}, next wall {}\n", paint(Colour::bold, verdict_name(x.verdict)),
             wall_name(x.wall), wall_name(x.next_wall));
  print_evidence(x);
  print_levers(x, most);
}

}  // namespace

void add_explain_command(CLI::App& app, Global& global) {
  auto o = std::make_shared<ExplainOptions>();
  CLI::App* command = app.add_subcommand(
      "explain",
      "My endpoint does X: which wall is that, what would each lever gain, what comes next?");
  add_request_options(*command, o->request, EndpointOptions::left_out);
  command->remove_option(command->get_option("--batch"));
  for (const ObservedOption& option : observed_options()) {
    std::string names = std::string("--") + option.name;
    if (*option.letter) names += std::string(",-") + option.letter;
    command->add_option(names, o->seen.*option.value, option.help)->group("What you see");
  }
  command->add_option("--levers", o->most, "How many levers to print")
      ->check(CLI::Range(0, 1000))
      ->group("Output");
  command->footer(kExplainExamples);
  command->callback([o, command, &global] {
    const Request request = make_request(o->request);
    const Observation seen = make_observation(o->seen);
    check_experts(*command, {&request, 1});
    Explanation x = explain(request, seen, command->count("--context") > 0);
    if (global.json) {
      if (command->count("--levers") > 0 && x.levers.size() > size_t(o->most)) {
        x.levers.resize(size_t(o->most));
      }
      fmt::print("{}\n", to_json(request, x).dump(2));
    } else if (seen.tokens_per_s || seen.itl_s) {
      print_explanation(request, x, o->most);
    } else {
      print_prefill(request, x, o->most);
    }
  });
}

}  // namespace ridge
