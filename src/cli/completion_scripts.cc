// Completion scripts for bash, zsh and fish.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cli/command_text.h"

namespace ridge {
namespace {

// `ridge` itself, its commands and their commands, each after the one it belongs to.
std::vector<const CommandText*> all_commands(const CommandText& ridge) {
  std::vector<const CommandText*> list{&ridge};
  for (const CommandText& command : ridge.commands) {
    for (const CommandText* each : all_commands(command)) list.push_back(each);
  }
  return list;
}

std::string option_names(const CommandText& command) {
  std::vector<std::string> names;
  for (const OptionText& option : command.options) {
    if (!option.positional) names.insert(names.end(), option.names.begin(), option.names.end());
  }
  return fmt::format("{}", fmt::join(names, " "));
}

std::string command_names(const CommandText& command) {
  std::vector<std::string> names;
  for (const CommandText& each : command.commands) names.push_back(each.name);
  return fmt::format("{}", fmt::join(names, " "));
}

// Words that may stand without a dash: commands and the values of the first positional argument.
std::string plain_words(const CommandText& command) {
  std::string words = command_names(command);
  for (const OptionText& option : command.options) {
    if (option.positional) return fmt::format("{} {}", words, fmt::join(option.values, " "));
  }
  return words;
}

std::string replaced(std::string text, std::string_view from, std::string_view to) {
  for (size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size()) {
    text.replace(at, from.size(), to);
  }
  return text;
}

// Inside single quotes of a POSIX shell.
std::string shell_quoted(const std::string& text) {
  return "'" + replaced(text, "'", "'\\''") + "'";
}

// Inside single quotes of fish, where a backslash escapes.
std::string fish_quoted(const std::string& text) {
  return "'" + replaced(replaced(text, "\\", "\\\\"), "'", "\\'") + "'";
}

// Inside the brackets of a zsh option specification.
std::string bracketed(const std::string& text) {
  return replaced(replaced(replaced(text, "[", "\\["), "]", "\\]"), ":", "\\:");
}

}  // namespace

// Where nothing is offered, bash completes file names (-o default).
std::string bash_completion(const CommandText& ridge) {
  std::string known, cases;
  for (const CommandText* command : all_commands(ridge)) {
    if (!command->path.empty()) {
      const size_t space = command->path.rfind(' ');
      const std::string parent = space == std::string::npos ? "" : command->path.substr(0, space);
      known +=
          fmt::format("      '{}/{}') command='{}' ;;\n", parent, command->name, command->path);
    }
    cases += fmt::format("    '{}')\n      options='{}'\n      words='{}'\n", command->path,
                         option_names(*command), plain_words(*command));
    cases += "      case $previous in\n";
    for (const OptionText& option : command->options) {
      if (!option.takes_value || option.positional) continue;
      cases += fmt::format("        {}) values='{}' value=yes ;;\n", fmt::join(option.names, "|"),
                           fmt::join(option.values, " "));
    }
    cases += "      esac\n      ;;\n";
  }
  return fmt::format(R"(# Completion of ridge for bash, made by `ridge completion bash`.
_ridge() {{
  local current=${{COMP_WORDS[COMP_CWORD]}} previous=${{COMP_WORDS[COMP_CWORD-1]}}
  local command='' options='' words='' values='' value=no i
  for ((i = 1; i < COMP_CWORD; ++i)); do
    case "$command/${{COMP_WORDS[i]}}" in
{}    esac
  done
  case $command in
{}  esac
  if [ "$value" = yes ]; then
    words=$values
  elif [[ $current == -* ]]; then
    words="$options {}"
  fi
  COMPREPLY=($(compgen -W "$words" -- "$current"))
}}
complete -o default -F _ridge ridge
)",
                     known, cases, option_names(ridge));
}

std::string zsh_completion(const CommandText& ridge) {
  const auto specs = [](const CommandText& command, const std::string& indent) {
    std::string text;
    int positional = 0;
    for (const OptionText& option : command.options) {
      const std::string offer =
          option.values.empty() ? "_files" : fmt::format("({})", fmt::join(option.values, " "));
      if (option.positional) {
        if (!command.commands.empty()) continue;  // the word is a command or a value: see below
        text += fmt::format(
            " \\\n{}{}", indent,
            shell_quoted(fmt::format("{}:{}:{}", ++positional, option.names[0], offer)));
        continue;
      }
      for (const std::string& name : option.names) {
        std::string spec = fmt::format("{}[{}]", name, bracketed(option.help));
        if (option.takes_value) spec += fmt::format(":{}:{}", option.value, offer);
        text += fmt::format(" \\\n{}{}", indent, shell_quoted(spec));
      }
    }
    return text;
  };
  std::string functions;
  for (const CommandText* command : all_commands(ridge)) {
    const std::string name =
        "_ridge" + (command->path.empty() ? "" : "_" + replaced(command->path, " ", "_"));
    functions += fmt::format("{}() {{\n", name);
    if (command->commands.empty()) {
      functions += fmt::format("  _arguments -s{}\n}}\n\n", specs(*command, "    "));
      continue;
    }
    std::string choices, cases;
    for (const CommandText& each : command->commands) {
      choices += fmt::format(" \\\n    {}", shell_quoted(each.name + ":" + each.help));
      cases += fmt::format("        {}) _ridge_{} ;;\n", each.name, replaced(each.path, " ", "_"));
    }
    std::string values;
    for (const OptionText& option : command->options) {
      if (option.positional) values = fmt::format("{}", fmt::join(option.values, " "));
    }
    functions += fmt::format(R"(  local line state
  local -a commands=({}
  )
  _arguments -C{} \
    '1:command:->command' '*::argument:->arguments'
  case $state in
    command)
      _describe command commands
      compadd -- {}
      ;;
    arguments)
      case $line[1] in
{}      esac
      ;;
  esac
}}

)",
                             choices, specs(*command, "    "), values, cases);
  }
  return "#compdef ridge\n# Completion of ridge for zsh, made by `ridge completion zsh`.\n" +
         functions + "_ridge \"$@\"\n";
}

std::string fish_completion(const CommandText& ridge) {
  std::string text = "# Completion of ridge for fish, made by `ridge completion fish`.\n";
  for (const CommandText* command : all_commands(ridge)) {
    // `ridge` takes its own options anywhere; a command's belong to it.
    const std::string seen =
        command->path.empty()
            ? ""
            : " -n " + fish_quoted("__fish_seen_subcommand_from " +
                                   command->path.substr(0, command->path.find(' ')));
    const std::string where = command->path.empty() ? " -n __fish_use_subcommand" : seen;
    for (const CommandText& each : command->commands) {
      text += fmt::format("complete -c ridge{} -f -a {} -d {}\n", where, each.name,
                          fish_quoted(each.help));
    }
    for (const OptionText& option : command->options) {
      const std::string values = fmt::format("{}", fmt::join(option.values, " "));
      if (option.positional) {
        if (!values.empty())
          text += fmt::format("complete -c ridge{} -a {}\n", seen, fish_quoted(values));
        continue;
      }
      text += fmt::format("complete -c ridge{}", seen);
      for (const std::string& name : option.names) {
        text += name.starts_with("--") ? " -l " + name.substr(2) : " -s " + name.substr(1);
      }
      if (option.takes_value) text += values.empty() ? " -r" : " -r -a " + fish_quoted(values);
      text += fmt::format(" -d {}\n", fish_quoted(option.help));
    }
  }
  return text;
}

}  // namespace ridge
