// ridge predict --training: memory of training by part, and what fits.
#pragma once

#include "cli/command.h"
#include "predict/request.h"

namespace ridge {

enum class TrainingOutput : uint8_t { text, csv, json };

// For each request: `batch` sequences of `context` tokens per device. The parallelism of the
// requests is not used: devices are data-parallel ranks, and the table shows each way to shard.
void print_training(const RequestGrid& grid, TrainingOutput output);

}  // namespace ridge
