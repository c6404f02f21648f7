// The atlas: machine files by name. Built in, overridden by the user's own folders.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "machine/machine.h"

namespace ridge {

// Folders searched before the embedded atlas, nearest first: --atlas DIR, then
// $XDG_CONFIG_HOME/ridge (~/.config/ridge). Each may hold machines/*.json or *.json.
void set_atlas_folder(std::string folder);

std::vector<Machine> all_machines();  // sorted by year then name

// What the user's folders say of one machine, without the atlas or detection under it; nullopt
// where they have no file of that name. `ridge measure` writes such files.
std::optional<Machine> user_machine(std::string_view name);

// "h100-sxm", "H100", "h100_sxm5", "8xh100-sxm", "2x8xh100-sxm", "this", or a path to a JSON
// file. Throws Error naming the nearest known names.
System find_system(std::string_view name);
Machine find_machine(std::string_view name);

Machine machine_from_json(const nlohmann::json& json, std::string_view where);
nlohmann::json machine_to_json(const Machine& machine);

// The numbers of `top` replace those of `base`; what `top` does not know stays.
Machine overlay(Machine base, const Machine& top);

}  // namespace ridge
