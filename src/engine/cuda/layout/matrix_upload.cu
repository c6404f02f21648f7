#include <algorithm>
#include <future>
#include <thread>
#include <vector>

#include "engine/cuda/layout/matrix_upload.cuh"

namespace ridge::cuda {
namespace {

constexpr int64_t kPieceElements = int64_t{8} << 20;  // 16 MB
// The fewest for which a thread is started: their conversion takes 0.1 ms and more.
constexpr int64_t kThreadElements = int64_t{1} << 18;

void convert(const FillRows& fill, int64_t first, int64_t count, int64_t columns, uint16_t* to) {
  const int64_t cores = std::max(1u, std::thread::hardware_concurrency());
  const int64_t threads = std::clamp<int64_t>(count * columns / kThreadElements, 1, cores);
  const int64_t each = (count + threads - 1) / threads;
  std::vector<std::future<void>> others;
  for (int64_t at = each; at < count; at += each) {
    others.push_back(std::async(std::launch::async, [&, at] {
      fill(first + at, std::min(each, count - at), to + at * columns);
    }));
  }
  fill(first, std::min(each, count), to);
  for (std::future<void>& other : others) other.get();
}

}  // namespace

MatrixUpload::~MatrixUpload() { release(); }

void MatrixUpload::release() {
  for (Piece& piece : pieces_) {
    if (piece.copied) cudaEventSynchronize(piece.copied), cudaEventDestroy(piece.copied);
    if (piece.host) cudaFreeHost(piece.host);
    piece = {};
  }
}

MatrixUpload::Piece& MatrixUpload::acquire(size_t elements) {
  Piece& piece = pieces_[next_];
  next_ ^= 1;
  if (!piece.copied) {
    check(cudaEventCreateWithFlags(&piece.copied, cudaEventDisableTiming), "making an event");
  }
  check(cudaEventSynchronize(piece.copied), "copying weights");
  if (piece.capacity < elements) {
    if (piece.host) check(cudaFreeHost(piece.host), "releasing memory");
    piece.host = nullptr, piece.capacity = 0;
    check(cudaMallocHost(&piece.host, elements * sizeof(uint16_t)), "pinning memory");
    piece.capacity = elements;
  }
  return piece;
}

void MatrixUpload::queue(cudaStream_t stream, const FillRows& fill, int rows, int columns,
                         DeviceBuffer<uint16_t>& to) {
  if (to.size() < size_t(rows) * columns) {
    check(cudaStreamSynchronize(stream), "packing weights");  // which reads the smaller buffer
    to = DeviceBuffer<uint16_t>(size_t(rows) * columns);
  }
  const int64_t most = std::max<int64_t>(1, kPieceElements / columns);  // rows of a piece
  for (int64_t at = 0; at < rows; at += most) {
    const int64_t count = std::min<int64_t>(most, rows - at);
    const size_t elements = size_t(count) * columns;
    Piece& piece = acquire(elements);
    convert(fill, at, count, columns, piece.host);
    check(cudaMemcpyAsync(to.data() + at * columns, piece.host, elements * sizeof(uint16_t),
                          cudaMemcpyHostToDevice, stream),
          "copying weights");
    check(cudaEventRecord(piece.copied, stream), "copying weights");
  }
}

}  // namespace ridge::cuda
