// What the Learn path of the page asks beyond the predictions: which machine is the reader's, and
// one matrix product under the roof.
#pragma once

#include "base/json.h"
#include "page/api.h"

namespace ridge {

// {machine, model, measured, streams_from, why}. The machine is "this" only where `ridge measure`
// has written a file of it: the quick probe of an unmeasured machine is too coarse to teach with.
// Its model is the smallest built-in one whose weights no cache can keep. Otherwise an example.
Json learn_json();

// Options of /api/work.
inline constexpr ApiOptionHelp kWorkOptions[] = {
    {"op", "The operator: matmul"},
    {"m", "Rows of the activations: tokens (1)"},
    {"n", "Columns of the weights: outputs (4096)"},
    {"k", "Rows of the weights: inputs (4096)"},
    {"dtype", "Element type of both operands; the machine's own where not given"},
    {"machine", "Machine, by name"},
};

// FLOPs, bytes, FLOPs per byte, the ridge, the wall and the share of the peak at the roof of an
// m x k by k x n product, and the rows at which it reaches the ridge (null where no number does).
Json work_of_product(const ApiOptions& options);

}  // namespace ridge
