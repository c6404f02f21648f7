// Copies matrices to the device as bf16, whatever they are stored as: the cores of the host convert
// a piece of 16 MB together while the piece before is copied.
#pragma once

#include "engine/cuda/device/device.cuh"
#include "engine/cuda/layout/model_shape.h"

namespace ridge::cuda {

class MatrixUpload {
 public:
  MatrixUpload() = default;
  ~MatrixUpload();
  MatrixUpload(const MatrixUpload&) = delete;
  MatrixUpload& operator=(const MatrixUpload&) = delete;

  // `to` grows where it is too small. Returns when all pieces are converted; the last copies may
  // still be under way in the stream.
  void queue(cudaStream_t stream, const FillRows& fill, int rows, int columns,
             DeviceBuffer<uint16_t>& to);
  void release();  // the memory; waits for the copies

 private:
  struct Piece {
    uint16_t* host = nullptr;  // pinned
    size_t capacity = 0;       // elements
    cudaEvent_t copied = nullptr;
  };
  // The next of the two pieces, when its last copy is done.
  Piece& acquire(size_t elements);

  Piece pieces_[2];
  int next_ = 0;
};

}  // namespace ridge::cuda
