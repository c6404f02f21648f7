// The completions and the manual page: every command and option of the help is in each of them.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <regex>
#include <set>
#include <string>

namespace ridge {
namespace {

std::string output_of(const std::string& command, int* status = nullptr) {
  FILE* pipe = popen(command.c_str(), "r");
  std::string text;
  std::array<char, 4096> buffer;
  for (size_t n; (n = fread(buffer.data(), 1, buffer.size(), pipe)) > 0;) {
    text.append(buffer.data(), n);
  }
  const int code = pclose(pipe);
  if (status) *status = code;
  return text;
}

std::string ridge(const std::string& arguments) {
  int status = -1;
  const std::string text = output_of(std::string(RIDGE_BINARY) + " " + arguments, &status);
  EXPECT_EQ(status, 0) << arguments;
  return text;
}

// Names of the commands in a help text: the lines below "Subcommands:".
std::set<std::string> commands_in(const std::string& help) {
  std::set<std::string> names;
  const size_t list = help.find("Subcommands:");
  if (list == std::string::npos) return names;
  static const std::regex kLine("^  ([a-z]+) ");
  size_t at = help.find('\n', list) + 1;
  for (std::smatch found; at < help.size(); at = help.find('\n', at) + 1) {
    const std::string line = help.substr(at, help.find('\n', at) - at);
    if (line.empty()) break;
    if (std::regex_search(line, found, kLine)) names.insert(found[1]);
  }
  return names;
}

// Long options in a help text: at the start of a line, alone or after a short one.
std::set<std::string> options_in(const std::string& help) {
  static const std::regex kOption("(?:^|\\n)  (?:-[A-Za-z],)?--([a-z][a-z0-9-]*)");
  std::set<std::string> names;
  for (std::sregex_iterator each(help.begin(), help.end(), kOption), end; each != end; ++each) {
    names.insert((*each)[1]);
  }
  return names;
}

// Everything a user can type: "predict" -> its options; "" -> those of ridge itself.
struct Words {
  std::set<std::string> commands, options;
};
Words all_words() {
  Words words;
  const std::string help = ridge("--help");
  words.commands = commands_in(help);
  words.options = options_in(help);
  for (const std::string& command : std::set<std::string>(words.commands)) {
    const std::string text = ridge(command + " --help");
    words.options.merge(options_in(text));
    words.commands.merge(commands_in(text));
  }
  EXPECT_GE(words.commands.size(), 15u);  // 14 commands and `machine compare` when this was written
  EXPECT_GE(words.options.size(), 60u);
  return words;
}

TEST(Completion, HoldsEveryCommandAndOption) {
  const Words words = all_words();
  for (const std::string shell : {"bash", "zsh", "fish"}) {
    const std::string script = ridge("completion " + shell);
    for (const std::string& command : words.commands) {
      EXPECT_TRUE(std::regex_search(script, std::regex("\\b" + command + "\\b")))
          << shell << ": " << command;
    }
    for (const std::string& option : words.options) {
      const std::string name = (shell == "fish" ? "-l " : "--") + option;
      EXPECT_TRUE(std::regex_search(script, std::regex(name + "(?![a-z0-9-])")))
          << shell << ": " << name;
    }
  }
}

TEST(Completion, IsAValidScript) {
  for (const std::string shell : {"bash", "zsh", "fish"}) {
    if (std::system(fmt::format("command -v {} >/dev/null", shell).c_str()) != 0) continue;
    const std::string command = fmt::format("{} completion {} | {} -n", RIDGE_BINARY, shell, shell);
    EXPECT_EQ(std::system(command.c_str()), 0) << command;
  }
}

// bash is asked as a terminal would ask it.
std::string completed(const std::string& line) {
  return output_of(
      fmt::format("bash -c 'source <({} completion bash); COMP_WORDS=({}); "
                  "COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); "
                  "_ridge; echo \"${{COMPREPLY[*]}}\"'",
                  RIDGE_BINARY, line));
}

TEST(Completion, OffersWhatFits) {
  EXPECT_EQ(completed("ridge pred"), "predict\n");
  EXPECT_EQ(completed("ridge predict --machine h100-s"), "h100-sxm\n");
  EXPECT_EQ(completed("ridge predict -M h100-s"), "h100-sxm\n");
  EXPECT_EQ(completed("ridge machine comp"), "compare\n");
  EXPECT_EQ(completed("ridge completion zs"), "zsh\n");
  EXPECT_EQ(completed("ridge serve --hos"), "--host\n");
  EXPECT_EQ(completed("ridge serve --ops"), "\n");  // an option of predict
}

TEST(ManualPage, HoldsEveryCommandAndOption) {
  const std::string page = ridge("manual");
  const Words words = all_words();
  for (const std::string& command : words.commands) {
    EXPECT_TRUE(std::regex_search(page, std::regex("\\.SS ridge ([a-z]+ )?" + command + "\\n")))
        << command;
  }
  for (const std::string& option : words.options) {
    const std::string name = "\\-\\-" + std::regex_replace(option, std::regex("-"), "\\-") + "\\fR";
    EXPECT_NE(page.find(name), std::string::npos) << option;
  }
}

TEST(ManualPage, RendersWithoutWarnings) {
  if (std::system("command -v groff >/dev/null") != 0) GTEST_SKIP() << "groff is not installed";
  int status = -1;
  const std::string warnings = output_of(
      fmt::format("{} manual | groff -man -Kutf8 -Tutf8 -ww -z 2>&1", RIDGE_BINARY), &status);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(warnings, "");
}

}  // namespace
}  // namespace ridge
