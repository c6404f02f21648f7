#include "cli/run_report.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/text.h"
#include "base/units.h"
#include "cli/engine_options.h"

namespace ridge {
namespace {

Account account_of(const Runner& runner, const Ledger& ledger, const System& system,
                   const Profile& profile) {
  return ledger.account(runner.weights().model, runner.plan(), system, engine_stack(system),
                        profile.entries().empty() ? nullptr : &profile);
}

void add_operators(Table& table, const char* phase, const Account& account) {
  for (const OperatorAccount& op : account.operators) {
    if (op.calls == 0 && op.measured_s == 0) continue;
    const double steps = double(std::max(account.steps, 1L));
    const bool timed = op.measured_s > 0;
    table.add({phase, op.name, pretty_bytes(op.bytes / steps), pretty_flops(op.flops / steps),
               pretty_time(op.roof_s / steps), pretty_time(op.expected_s / steps),
               timed ? pretty_time(op.measured_s / steps) : "-",
               timed ? pretty_rate(op.bytes / op.measured_s) : "-",
               timed ? pretty_percent(op.roof_s / op.measured_s) : "-",
               std::string(wall_name(op.wall))});
    phase = "";
  }
}

void add_total(Table& table, const Account& account) {
  const double steps = double(std::max(account.steps, 1L));
  double in_operators = 0;
  for (const OperatorAccount& op : account.operators) in_operators += op.measured_s;
  table.add({"", "unattributed", "", "", "", "",
             pretty_time(std::max(0.0, account.measured_s - in_operators) / steps), "", "", ""});
  table.add({"", "step", pretty_bytes(account.bytes / steps), pretty_flops(account.flops / steps),
             pretty_time(account.roof_s / steps), pretty_time(account.expected_s / steps),
             pretty_time(account.measured_s / steps), pretty_rate(account.bytes_per_s()),
             pretty_percent(account.share_of_roof()), std::string(wall_name(account.wall))});
}

}  // namespace

std::string run_line(const Runner& runner, const Generated& made, const System& system) {
  const Account account = account_of(runner, made.generation, system, made.generation_profile);
  const double given = made.prompt.seconds();
  if (made.prompt.steps() == 0) return "cancelled before the prompt";
  const double prompt_tokens = made.prompt.tokens();
  std::string line = fmt::format("prompt {:.0f} tokens in {} ({} tok/s)", prompt_tokens,
                                 pretty_time(given), pretty_number(prompt_tokens / given));
  if (account.steps == 0) return line;
  const double rate = account.tokens / std::max(made.generation_s, 1e-9);
  line += fmt::format("; {:.0f} tokens at {}", account.tokens,
                      paint(Colour::bold, pretty_number(rate) + " tok/s"));
  line += fmt::format(", {}, {} of the roof ({} {}); wall: {}", pretty_rate(account.bytes_per_s()),
                      pretty_percent(account.share_of_roof()), account.memory,
                      pretty_rate(account.bandwidth), wall_name(account.wall));
  return line;
}

std::string profile_text(const Runner& runner, const Generated& made, const System& system) {
  Table table({"phase", "operator", "bytes", "work", "roof", "predicted", "measured", "rate",
               "of roof", "wall"});
  const Account prompt = account_of(runner, made.prompt, system, made.prompt_profile);
  add_operators(table, "prompt", prompt);
  add_total(table, prompt);
  const Account generation = account_of(runner, made.generation, system, made.generation_profile);
  if (generation.steps > 0) {
    table.rule();
    add_operators(table, "decode", generation);
    add_total(table, generation);
  }
  const std::string ranks =
      runner.plan().devices() > 1 ? ranks_line(runner, system) + "\n" : std::string();
  return fmt::format("{}\nMeans per step. {}.\n{}\n", table.text(), runner.device(), ranks);
}

std::string ranks_line(const Runner& runner, const System& system) {
  const Plan plan = runner.plan();
  std::string line = "Bytes, work and times are those of ";
  line += plan.tp > 1 ? fmt::format("one of {} ranks", plan.tp) : "the rank";
  line += plan.pp > 1 ? fmt::format(" of each of {} stages, added up.", plan.pp) : ".";
  if (system.device.links.empty()) return line;
  const Link& link = system.device.links.front();
  if (link.latency && link.bandwidth) {
    line += fmt::format(" Link: {}, {}, {}.", link.name, pretty_time(*link.latency),
                        pretty_rate(*link.bandwidth));
  }
  return line;
}

std::string decode_text(const Runner& runner, const Generated& made, const System& system) {
  const Account account = account_of(runner, made.generation, system, made.generation_profile);
  const double steps = double(std::max(account.steps, 1L));
  Table table({"operator", "bytes", "roof", "measured", "of roof", ""});
  for (const OperatorAccount& op : account.operators) {
    if (op.measured_s == 0) continue;
    const double share = op.roof_s / op.measured_s;
    table.add({op.name, pretty_bytes(op.bytes / steps), pretty_time(op.roof_s / steps),
               pretty_time(op.measured_s / steps), pretty_percent(share),
               bar(std::min(share, 1.0), 20)});
  }
  return table.text();
}

std::string wrap(std::string_view text, size_t width) {
  std::string wrapped;
  size_t column = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find_first_of(" \n", at), text.size());
    const std::string_view word = text.substr(at, end - at);
    if (column > 0 && column + 1 + display_width(word) > width) {
      wrapped += '\n';
      column = 0;
    } else if (at > 0 && column > 0) {
      wrapped += ' ';
      ++column;
    }
    wrapped += word;
    column += display_width(word);
    if (end < text.size() && text[end] == '\n') {
      wrapped += '\n';
      column = 0;
    }
    at = end + 1;
  }
  return wrapped + '\n';
}

Json account_json(const Account& account) {
  Json operators = Json::array();
  for (const OperatorAccount& op : account.operators) {
    operators.push_back({{"name", op.name},
                         {"calls", op.calls},
                         {"bytes", op.bytes},
                         {"flops", op.flops},
                         {"roof_s", op.roof_s},
                         {"expected_s", op.expected_s},
                         {"measured_s", op.measured_s},
                         {"wall", wall_name(op.wall)}});
  }
  return {{"steps", account.steps},
          {"tokens", account.tokens},
          {"seconds", account.measured_s},
          {"tokens_per_s", account.measured_s > 0 ? account.tokens / account.measured_s : 0},
          {"bytes", account.bytes},
          {"flops", account.flops},
          {"bytes_per_s", account.bytes_per_s()},
          {"roof_s", account.roof_s},
          {"expected_s", account.expected_s},
          {"share_of_roof", account.share_of_roof()},
          {"wall", wall_name(account.wall)},
          {"next_wall", wall_name(account.next_wall)},
          {"memory", account.memory},
          {"bandwidth", account.bandwidth},
          {"operators", std::move(operators)}};
}

Json run_json(const Runner& runner, const Generated& made, size_t prompt_tokens,
              const System& system) {
  const Tokenizer* tokenizer = runner.weights().tokenizer.get();
  Json sampled = Json::array();
  for (const Sampled& each : made.sampled) {
    Json best = Json::array();
    for (const auto& [token, logprob] : each.top_logprobs) {
      best.push_back({{"token", token}, {"logprob", logprob}});
    }
    Json entry{{"token", each.token}, {"logprob", each.logprob}, {"best", std::move(best)}};
    if (tokenizer != nullptr) entry["text"] = tokenizer->piece(each.token);
    sampled.push_back(std::move(entry));
  }
  return {{"model", runner.weights().source},
          {"device", runner.device()},
          {"prompt_tokens", prompt_tokens},
          {"tokens", made.tokens},
          {"text", made.text},
          {"end", end_reason_name(made.end)},
          {"first_token_s", made.first_token_s},
          {"prompt", account_json(account_of(runner, made.prompt, system, made.prompt_profile))},
          {"generation",
           account_json(account_of(runner, made.generation, system, made.generation_profile))},
          {"sampled", std::move(sampled)}};
}

std::string chrome_trace(const Generated& made) {
  Json events = Json::array();
  const std::vector<Profile::Event>& first = made.prompt_profile.events();
  const Profile::Clock::time_point epoch =
      first.empty() ? Profile::Clock::time_point{} : first.front().start;
  const auto micros = [](Profile::Clock::duration d) {
    return std::chrono::duration<double, std::micro>(d).count();
  };
  for (const Profile* profile : {&made.prompt_profile, &made.generation_profile}) {
    const char* phase = profile == &made.prompt_profile ? "prompt" : "decode";
    for (const Profile::Event& event : profile->events()) {
      events.push_back({{"name", event.name},
                        {"cat", phase},
                        {"ph", "X"},
                        {"ts", micros(event.start - epoch)},
                        {"dur", micros(event.end - event.start)},
                        {"pid", 1},
                        {"tid", 1}});
    }
  }
  return Json{{"traceEvents", std::move(events)}, {"displayTimeUnit", "ms"}}.dump();
}

}  // namespace ridge
