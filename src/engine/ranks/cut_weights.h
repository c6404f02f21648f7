// One rank's part of a model's weights.
//
//   q, k, v, gate, up    rows: whole heads, and inner columns of the MLP
//   q_b, kv_b            rows of these heads; q_a and kv_a, which make the latents, on every rank
//   out, down            the columns that belong to these rows: partial sums, to be all-reduced
//   experts              rows and columns as the MLP's, or whole experts
//   head                 rows: a range of the vocabulary
//   embedding, norms, router   on every rank (CUDA uploads its part of the embedding)
//   biases and sinks     with their rows; those of out and down on the first rank, zeros on others
//   layers               those of the rank's stage
//
// KV heads fewer than ranks are held by several. Rows are views into the mapped files; columns of
// plain formats are copied, so that each rank streams its own bytes.
#pragma once

#include <functional>

#include "engine/weights/weights.h"
#include "ranks/rank_grid.h"

namespace ridge {

// Throws Error where the model cannot be cut so: heads, blocks of a quantized format, layers or
// experts that do not divide.
void check_cut(const Weights& whole, const RankGrid& grid);

// The architecture is the part's: its heads, inner columns and layers. Has no tokenizer. `make` is
// called with every view of the whole's matrices that the part needs, before it is read.
Weights cut_weights(const Weights& whole, const RankGrid& grid, int rank,
                    const std::function<void(const Matrix& view)>& make = {});

// Bytes of weights that the CPU runners of all ranks copy on loading: block formats are repacked,
// and columns that ranks cut out of plain formats are copied. The rest is read where it is mapped.
double cpu_copied_bytes(const Weights& whole, const RankGrid& grid);

// What part `part` of `parts` holds: rows of the head, and experts where they are given whole.
struct RankPart {
  int first, end;
};
RankPart vocabulary_part(int vocab, int part, int parts);
RankPart expert_part(int experts, int part, int parts);

}  // namespace ridge
