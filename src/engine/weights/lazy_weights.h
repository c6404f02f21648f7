// Weights whose matrices are made or copied where they are needed: by ranks, of which each holds a
// part.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <string>

#include "engine/weights/weights.h"

namespace ridge {

// Some matrices of `whole` are memory that nobody has touched, until make() fills a view of some
// rows and columns of one.
struct LazyWeights {
  Weights whole;
  std::function<void(const Matrix& view)> make;  // empty: all is there
};

// As load_weights(). What a file stores in another order (load_tensors.h) is copied by make(), part
// by part. So many hosts share the copies. Throws Error, and so does make() where a part holds what
// is no number.
LazyWeights lazy_weights(const std::string& name, int hosts);

// What describes a model, without its weights: of a file, a folder, a model of the Hugging Face
// cache, one inside the program or a built-in name. Throws Error.
Architecture read_architecture(const std::string& name);

// The copies that are still to be made.
class LateCopies {
 public:
  explicit LateCopies(int hosts) : hosts_(hosts) {}
  int hosts() const { return hosts_; }  // that share the copies

  // Writes rows [first, first + rows) of a matrix to `to`, one after the other. From any thread.
  using CopyRows = std::function<void(int64_t first, int64_t rows, std::byte* to)>;
  void add(const Matrix& whole, CopyRows copy);
  // Copies a view of one of the matrices; views of other memory are left alone. Throws what a copy
  // throws.
  void fill(const Matrix& view) const;

 private:
  struct Late {
    Matrix whole;
    CopyRows copy;
  };
  int hosts_;
  std::map<const std::byte*, Late> by_address_;
};

}  // namespace ridge
