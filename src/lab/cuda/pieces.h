// The same small piece of work on every SM, thousands of times, started in three ways.
#pragma once

#include <memory>

#include "lab/cuda/lab_gpu.h"

namespace ridge {

class LaunchPieces {
 public:
  // `nodes`: launches of a graph.
  LaunchPieces(LabGpu& gpu, int nodes);
  ~LaunchPieces();
  static double bytes(const LabGpu& gpu);  // read and written by a piece

  // Each queues `count` pieces that follow each other; by_graph: whole graphs.
  void by_stream(int count);
  void by_graph(int count);
  void by_persistent(int count);

  void reset();
  bool all_equal(float value);

 private:
  struct Data;
  LabGpu& gpu_;
  int nodes_;
  std::unique_ptr<Data> data_;
};

}  // namespace ridge
