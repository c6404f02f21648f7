// Open MPI's library, loaded when it is first needed: Ridge builds and runs without it.
#pragma once

#include <cstddef>
#include <string>

namespace ridge {

// Open MPI's binary interface: handles are addresses, constants as in its mpi.h since version 2.
using MpiHandle = void*;
inline constexpr int kMpiThreadSerialized = 2;
inline constexpr int kMpiAnySource = -1;
inline constexpr size_t kMpiMaxPiece = 1 << 30;  // counts are ints

class MpiLibrary {
 public:
  static MpiLibrary& get();  // throws Error where the library is missing or too old

  int (*init_thread)(int*, char***, int, int*) = nullptr;
  int (*finalize)() = nullptr;
  int (*abort)(MpiHandle, int) = nullptr;
  int (*comm_rank)(MpiHandle, int*) = nullptr;
  int (*comm_size)(MpiHandle, int*) = nullptr;
  int (*comm_split)(MpiHandle, int, int, MpiHandle*) = nullptr;
  int (*comm_set_errhandler)(MpiHandle, MpiHandle) = nullptr;
  int (*isend)(const void*, int, MpiHandle, int, int, MpiHandle, MpiHandle*) = nullptr;
  int (*issend)(const void*, int, MpiHandle, int, int, MpiHandle, MpiHandle*) = nullptr;
  int (*irecv)(void*, int, MpiHandle, int, int, MpiHandle, MpiHandle*) = nullptr;
  int (*recv)(void*, int, MpiHandle, int, int, MpiHandle, void*) = nullptr;
  int (*iprobe)(int, int, MpiHandle, int*, void*) = nullptr;
  int (*test)(MpiHandle*, int*, void*) = nullptr;
  MpiHandle world = nullptr, byte = nullptr;

  // Calls on this communicator return their errors. Otherwise MPI ends the process with a message
  // of its own.
  void return_errors(MpiHandle communicator) const {
    comm_set_errhandler(communicator, errors_return_);
  }
  std::string error_text(int result) const;  // what a call's result means

 private:
  MpiLibrary();
  template <typename T>
  void find(T& to, const char* name);

  void* library_ = nullptr;
  MpiHandle errors_return_ = nullptr;
  int (*error_string_)(int, char*, int*) = nullptr;
};

}  // namespace ridge
