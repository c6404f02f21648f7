#include "cli/command_text.h"

#include <algorithm>

#include "machine/atlas.h"
#include "model/read.h"
#include "roofline/stack.h"

namespace ridge {
namespace {

std::vector<std::string> machine_names() {
  std::vector<std::string> names{"this"};
  for (const Machine& machine : all_machines()) names.push_back(machine.name);
  return names;
}

// "TEXT:{cpu,cuda}" has the choices that the option checks.
std::vector<std::string> choices_in(const std::string& type) {
  std::vector<std::string> choices;
  const size_t open = type.find('{'), close = type.find('}');
  if (open == std::string::npos || close == std::string::npos) return choices;
  for (size_t at = open + 1; at < close;) {
    const size_t end = std::min(type.find(',', at), close);
    choices.push_back(type.substr(at, end - at));
    at = end + 1;
  }
  return choices;
}

std::vector<std::string> values_of(const OptionText& option, const std::string& path,
                                   const std::string& type) {
  const std::string& name = option.names.back();
  if (name == "--model" || name == "--draft" || (path == "model" && option.positional)) {
    return builtin_model_names();
  }
  if (name == "--machine" || (path.starts_with("machine") && option.positional)) {
    return machine_names();
  }
  if (name == "--stack") return stack_names();
  return choices_in(type);
}

OptionText describe_option(const CLI::Option& option, const std::string& path) {
  OptionText text;
  for (const std::string& name : option.get_snames()) text.names.push_back("-" + name);
  for (const std::string& name : option.get_lnames()) text.names.push_back("--" + name);
  text.positional = text.names.empty();
  if (text.positional) text.names.push_back(option.get_name(true));
  text.takes_value = option.get_items_expected_max() > 0;
  if (text.takes_value) {
    const std::string type = option.get_type_name();
    text.value = type.substr(0, type.find_first_of(":{ "));
    if (text.value.empty()) text.value = "VALUE";
    text.values = values_of(text, path, type);
  }
  text.help = option.get_description();
  return text;
}

CommandText describe(const CLI::App& app, const std::string& path) {
  CommandText text;
  text.path = path;
  text.name = app.get_name();
  text.help = app.get_description();
  text.footer = app.get_footer();
  for (const CLI::Option* option : app.get_options()) {
    if (!option->get_group().empty()) text.options.push_back(describe_option(*option, path));
  }
  std::stable_partition(text.options.begin(), text.options.end(),
                        [](const OptionText& o) { return !o.positional; });
  const auto shown = [](const CLI::App* command) { return !command->get_group().empty(); };
  for (const CLI::App* command : app.get_subcommands(shown)) {
    text.commands.push_back(
        describe(*command, path.empty() ? command->get_name() : path + " " + command->get_name()));
  }
  return text;
}

}  // namespace

CommandText describe_commands(const CLI::App& app) { return describe(app, ""); }

}  // namespace ridge
