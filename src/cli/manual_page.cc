// ridge(1), in roff.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cli/command_text.h"

namespace ridge {
namespace {

// Text as roff prints it: hyphens that can be copied, and no line that starts a request.
std::string roff(std::string_view text) {
  std::string out;
  bool line_start = true;
  for (const char c : text) {
    if (line_start && (c == '.' || c == '\'')) out += "\\&";
    if (c == '\\') {
      out += "\\e";
    } else if (c == '-') {
      out += "\\-";
    } else {
      out += c;
    }
    line_start = c == '\n';
  }
  return out;
}

std::string verbatim(const std::string& text) {
  return text.empty() ? "" : fmt::format(".PP\n.nf\n{}\n.fi\n", roff(text));
}

std::string options_text(const CommandText& command) {
  std::string text;
  for (const OptionText& option : command.options) {
    std::vector<std::string> names;
    for (const std::string& name : option.names) {
      names.push_back((option.positional ? "\\fI" : "\\fB") + roff(name) + "\\fR");
    }
    text += fmt::format(".TP\n{}", fmt::join(names, ", "));
    if (option.takes_value && !option.positional) text += " \\fI" + roff(option.value) + "\\fR";
    text += "\n" + roff(option.help) + "\n";
  }
  return text;
}

std::string command_section(const CommandText& command) {
  std::string text = fmt::format(".SS ridge {}\n{}\n{}{}", roff(command.path), roff(command.help),
                                 options_text(command), verbatim(command.footer));
  for (const CommandText& each : command.commands) text += command_section(each);
  return text;
}

}  // namespace

std::string manual_page(const CommandText& ridge) {
  std::string text = fmt::format(
      ".TH RIDGE 1 \"\" \"ridge {}\" \"User Commands\"\n"
      ".SH NAME\nridge \\- measure, predict, run and explain language models\n"
      ".SH SYNOPSIS\n.B ridge\n[\\fIOPTIONS\\fR] [\\fICOMMAND\\fR [\\fIARGUMENTS\\fR]]\n"
      ".SH DESCRIPTION\n{}\nWithout a command it shows what this machine can do.\n"
      ".SH OPTIONS\n{}.SH COMMANDS\n",
      RIDGE_VERSION, roff(ridge.help), options_text(ridge));
  for (const CommandText& command : ridge.commands) text += command_section(command);
  text += ".SH EXAMPLES\n" + verbatim(ridge.footer);
  text +=
      ".SH EXIT STATUS\n0: success. 1: a check failed, such as a comparison outside its tolerance. "
      "2: bad input; one line on standard error says what was wrong.\n";
  return text;
}

}  // namespace ridge
