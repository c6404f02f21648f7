// ridge: which ceiling am I hitting, and how do I get to it?
#include <unistd.h>

#include <cstdio>
#include <iostream>

#include "base/error.h"
#include "cli/command.h"

int main(int argc, char** argv) {
  using namespace ridge;
  try {
    return run_command_line(argc, argv);
  } catch (const Error& error) {
    fmt::print(stderr, "ridge: {}\n", error.what());
  } catch (const std::bad_alloc&) {
    fmt::print(stderr, "ridge: out of memory\n");
  } catch (const std::exception& error) {
    fmt::print(stderr, "ridge: internal error: {}\n", error.what());
  }
  return 2;
}
