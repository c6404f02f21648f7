// What `ridge machine` prints, one function a view. Each prints to standard output, as JSON (or
// CSV) when asked.
#pragma once

#include <string>
#include <vector>

#include "machine/machine.h"
#include "machine/summary.h"
#include "model/model.h"

namespace ridge {

struct MachineView {
  bool json = false;
  bool csv = false;
  std::string svg;  // file for the picture, where the view draws one
};

void print_machine_list(const std::vector<Machine>& machines, const MachineView& view);
void print_machine(const System& system, const Model& model, const MachineView& view);
void print_machine_history(const std::vector<Machine>& machines, const MachineView& view);
void print_machine_comparison(const System& a, const System& b, const MachineView& view);

// The size of a level: caches in binary units, memories as their makers sell them.
std::string size_text(const Machine& machine, const Level& level, double bytes);

// A value that may be unknown, in the caller's format; "?" when it is.
template <typename Format>
std::string or_unknown(const Maybe& value, Format format) {
  return value ? format(*value) : "?";
}

}  // namespace ridge
