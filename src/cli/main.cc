// ridge: which ceiling am I hitting, and how do I get to it?
#include <fcntl.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <filesystem>
#include <system_error>

#include "base/error.h"
#include "cli/command.h"
#include "ranks/launcher.h"

namespace {

// If a standard stream is closed, the next file that is opened would take its descriptor.
void hold_standard_streams() {
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (::fcntl(fd, F_GETFD) >= 0) continue;
    // Standard output opens read-only, so that writing to it fails and lost output is an error.
    [[maybe_unused]] const int held = ::open("/dev/null", fd == STDOUT_FILENO ? O_RDONLY : O_RDWR);
  }
}

int say(const std::string& message) {
  std::fprintf(stderr, "ridge: %s\n", message.c_str());
  return 2;
}

}  // namespace

int main(int argc, char** argv) {
  using namespace ridge;
  hold_standard_streams();
  try {
    const int code = run_command_line(argc, argv);
    if (std::fflush(stdout) != 0) {
      return say("standard output: " + std::generic_category().message(errno));
    }
    return std::ferror(stdout) != 0 ? say("standard output could not be written") : code;
  } catch (const OptionError& error) {
    // mpirun starts every process with the same options: the first one says what is wrong.
    if (mpi_rank() > 0) end_with_leader();
    return say(error.what());
  } catch (const Error& error) {
    return say(error.what());
  } catch (const std::filesystem::filesystem_error& error) {
    return say(error.path1().string() + ": " + error.code().message());
  } catch (const std::system_error& error) {  // fmt throws it when output cannot be written
    return say(error.what());
  } catch (const std::bad_alloc&) {
    return say("out of memory");
  } catch (const std::exception& error) {
    return say(std::string("internal error: ") + error.what());
  }
}
