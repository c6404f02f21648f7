#include "cli/options.h"

#include <algorithm>
#include <string>

#include "base/error.h"

namespace ridge {

void add_request_options(CLI::App& command, RequestOptions& options, EndpointOptions endpoint) {
  for (const RequestOption& option : request_options()) {
    const std::string_view name = option.name;
    const bool of_endpoint = name == "clients" || name == "rate" || name == "output";
    if (endpoint == EndpointOptions::left_out && of_endpoint) continue;
    std::string names = std::string("--") + option.name;
    if (*option.letter) names += std::string(",-") + option.letter;
    CLI::Option* added = option.value
                             ? command.add_option(names, options.*option.value, option.help)
                             : command.add_flag(names, options.*option.flag, option.help);
    added->group(option.group);
  }
  // Without its partner an option would have no effect.
  constexpr const char* kPartners[][2] = {
      {"--acceptance", "--speculate"}, {"--draft", "--speculate"}, {"--reserve", "--no-paging"}};
  for (const auto& [option, partner] : kPartners) {
    CLI::Option* given = command.get_option_no_throw(option);
    if (given) given->needs(command.get_option(partner));
  }
}

void check_experts(const CLI::App& command, std::span<const Request> requests) {
  const bool experts = std::ranges::any_of(requests, [](const Request& request) {
    return std::ranges::any_of(request.model->groups,
                               [](const LayerGroup& group) { return group.layer.has_moe(); });
  });
  for (const char* option : {"--ep", "--expert-skew"}) {
    if (!experts && command.count(option) > 0) {
      throw Error("{}: {} has no experts", option, requests.front().model->name);
    }
  }
}

}  // namespace ridge
