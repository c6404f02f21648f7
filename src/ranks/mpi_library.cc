#include "ranks/mpi_library.h"

#include <dlfcn.h>

#include <array>

#include "base/error.h"

namespace ridge {

MpiLibrary& MpiLibrary::get() {
  static MpiLibrary library;
  return library;
}

MpiLibrary::MpiLibrary() {
  for (const char* name : {"libmpi.so.40", "libmpi.so"}) {
    // Its own plug-ins look for its symbols.
    library_ = dlopen(name, RTLD_NOW | RTLD_GLOBAL);
    if (library_ != nullptr) break;
  }
  if (library_ == nullptr) {
    throw Error(
        "libmpi.so.40 is not here: install openmpi-bin (Open MPI), or start without mpirun");
  }
  find(init_thread, "MPI_Init_thread");
  find(finalize, "MPI_Finalize");
  find(abort, "MPI_Abort");
  find(comm_rank, "MPI_Comm_rank");
  find(comm_size, "MPI_Comm_size");
  find(comm_split, "MPI_Comm_split");
  find(comm_set_errhandler, "MPI_Comm_set_errhandler");
  find(isend, "MPI_Isend");
  find(issend, "MPI_Issend");
  find(irecv, "MPI_Irecv");
  find(recv, "MPI_Recv");
  find(iprobe, "MPI_Iprobe");
  find(test, "MPI_Test");
  find(error_string_, "MPI_Error_string");
  find(world, "ompi_mpi_comm_world");
  find(byte, "ompi_mpi_byte");
  find(errors_return_, "ompi_mpi_errors_return");
}

template <typename T>
void MpiLibrary::find(T& to, const char* name) {
  void* symbol = dlsym(library_, name);
  if (symbol == nullptr) throw Error("libmpi has no {}: Open MPI 2 or newer is needed", name);
  to = reinterpret_cast<T>(symbol);
}

std::string MpiLibrary::error_text(int result) const {
  std::array<char, 512> text{};  // MPI_MAX_ERROR_STRING is 256
  int length = 0;
  if (error_string_(result, text.data(), &length) != 0) return fmt::format("error {}", result);
  return text.data();
}

}  // namespace ridge
