// Results as pictures: the band of every prediction is shaded, the predicted value is a dashed line
// or a mark, measured points lie over them, doubtful ones hollow. Categories have a row each,
// named, and no line between them.
#pragma once

#include <string>

#include "lab/experiment.h"

namespace ridge {

// Points as dots (doubtful ones as circles) and the predicted values as a line; for numbers on x.
Plot lab_plot(const Experiment& experiment, const LabResult& result);

// For a terminal, `width` characters wide. Empty where there is no point.
std::string lab_text_figure(const Experiment& experiment, const LabResult& result, int width = 78);
// A standalone SVG. Empty where there is no point.
std::string lab_svg(const Experiment& experiment, const LabResult& result);

std::string escape_html(std::string_view text);

}  // namespace ridge
