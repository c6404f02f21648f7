#include <fmt/format.h>

#include "cli/command.h"

namespace ridge {
void print_tour(const Global&) {}
}  // namespace ridge
