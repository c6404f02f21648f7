// The commands and their options as plain data, read from the definitions that parse them: the
// source of the completions and of the manual page.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace ridge {

struct OptionText {
  std::vector<std::string> names;   // "-b", "--batch"; the bare name of a positional argument
  bool positional = false;          // given without a dash
  bool takes_value = false;         // false: a flag
  std::string value;                // what the help calls the value: "TEXT"
  std::string help;                 // one line
  std::vector<std::string> values;  // the values to offer; empty: anything, such as a file
};

struct CommandText {
  std::string path;  // "machine compare"; empty for `ridge` itself
  std::string name;  // "compare"
  std::string help, footer;
  std::vector<OptionText> options;  // without hidden ones; positional arguments last
  std::vector<CommandText> commands;
};

// Hidden commands and options are left out.
CommandText describe_commands(const CLI::App& app);

std::string bash_completion(const CommandText& ridge);
std::string zsh_completion(const CommandText& ridge);
std::string fish_completion(const CommandText& ridge);
std::string manual_page(const CommandText& ridge);  // roff, section 1

}  // namespace ridge
