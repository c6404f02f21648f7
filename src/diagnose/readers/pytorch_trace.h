// PyTorch profiler (kineto) traces from any source of bytes; reader.h has the function for files.
#pragma once

#include <string>

#include "diagnose/evidence.h"
#include "diagnose/readers/json_stream.h"

namespace ridge {

// `stream` has the unpacked text of a trace. Memory: a few MB, and the intervals of the GPU and of
// the runtime's calls (timeline.h). A text that ends early or is damaged in places gives what it
// has, with notes. Throws Error where it has no event at all.
EvidenceFile read_pytorch_trace_events(JsonStream& stream, const std::string& name);

}  // namespace ridge
