// Where the user's own machine files and kept results lie.
#pragma once

#include <string>

namespace ridge {

// $XDG_CONFIG_HOME/ridge, else ~/.config/ridge. Empty where neither variable is set.
std::string user_folder();

}  // namespace ridge
