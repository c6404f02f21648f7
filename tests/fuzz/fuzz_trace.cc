// Any bytes as a trace: an Error or requests in order, with lengths of at least one token.
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "base/error.h"
#include "load/trace.h"
#include "replay.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto require = [](bool holds) {
    if (!holds) std::abort();
  };
  try {
    const ridge::Trace trace =
        ridge::parse_trace({reinterpret_cast<const char*>(data), size}, "fuzz");
    require(!trace.rows.empty());
    double last = 0;
    for (const ridge::TraceRow& row : trace.rows) {
      require(row.prompt_tokens >= 1 && row.output_tokens >= 1);
      require(std::isfinite(row.arrival_s) && row.arrival_s >= last);
      require(row.blocks.empty() || trace.block_tokens > 0);
      last = row.arrival_s;
    }
  } catch (const ridge::Error&) {
  }
  return 0;
}

std::vector<std::string> fuzz_seeds() {
  return {
      "{\"timestamp\": 5, \"input_length\": 1100, \"output_length\": 9, \"hash_ids\": [1, 2, 3]}\n"
      "{\"arrival_ms\": 7.5, \"prompt_tokens\": 30, \"output_tokens\": 1}\n",
      "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03.9799600,4808,10\n",
      "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n5,GPT-4,472,0,4,API\n"
      "6,GPT-4,4,3,7,API\n",
      "{\"input_lens\": [5, 6], \"output_lens\": [7, 8], \"start_times\": [1.5, 2]}",
  };
}
