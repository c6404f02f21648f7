// `ridge serve --step-pace WHAT`, which only tests use: how fast the server's steps are.
//
// WHAT is a duration ("5ms"), which each step takes at least, or "stdin": the server then reads
// commands from its standard input, one a line, and begins with `go`.
//   hold      no further step is launched; requests still arrive, and can be cancelled
//   step N    N more steps are launched, then none
//   go        every step is launched at once and takes no longer than it must
//   5ms       each step takes at least so long; a hold stays
// After a command has taken effect the server prints "pace: COMMAND" to standard output, a line
// that a test can wait for. Another line is an error on standard error and has no effect. The end
// of the input means `go`. With --dp the replicas share one pace: `step 3` is three steps of all
// replicas together.
#pragma once

#include <memory>
#include <string>

#include "serving/step_pace.h"

namespace ridge {

// Null where `what` is empty. With "stdin" a thread reads the commands as long as the program runs.
// Throws Error.
std::shared_ptr<StepPace> make_step_pace(const std::string& what);

}  // namespace ridge
