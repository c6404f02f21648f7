#include "cli/options.h"

#include <string>

namespace ridge {

void add_request_options(CLI::App& command, RequestOptions& options) {
  for (const RequestOption& option : request_options()) {
    std::string names = std::string("--") + option.name;
    if (*option.letter) names += std::string(",-") + option.letter;
    CLI::Option* added = option.value
                             ? command.add_option(names, options.*option.value, option.help)
                             : command.add_flag(names, options.*option.flag, option.help);
    added->group(option.group);
  }
}

}  // namespace ridge
