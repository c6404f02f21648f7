// Recorded requests: when each arrived and how long its prompt and its answer were.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace ridge {

struct TraceRow {
  double arrival_s = 0;
  int prompt_tokens = 1, output_tokens = 1;
  // Ids of the prompt's blocks of Trace::block_tokens. Two prompts that begin with the same ids
  // begin with the same tokens. Empty: the prompt shares nothing.
  std::vector<int64_t> blocks{};
  int64_t index = 0;  // position in the file, from 0, requests that were left out counted
};

struct Trace {
  std::string format;          // "JSON lines", "CSV", "vllm bench"
  std::vector<TraceRow> rows;  // by arrival; requests of the same time as in the file
  int block_tokens = 0;        // 0: no row has blocks
  bool has_arrivals = true;    // false: lengths alone; all arrive at 0
  int64_t failed = 0;          // requests without an answer, which are left out

  double duration_s() const { return rows.back().arrival_s - rows.front().arrival_s; }
  double requests_per_s() const;  // mean; 0 where all arrive at once
};

// Recognised by content:
//   JSON lines with arrival_ms, arrival_s or timestamp (milliseconds, as Mooncake writes it), the
//     prompt and output lengths (prompt_tokens, input_length, prompt ..), and optional hash_ids;
//   CSV with a header: Azure (TIMESTAMP, ContextTokens, GeneratedTokens), BurstGPT (Timestamp,
//     Request tokens, Response tokens), Vidur (arrived_at, num_prefill_tokens, num_decode_tokens;
//     or lengths alone);
//   the JSON of `vllm bench serve --save-detailed`.
// The tokens of a block are a line's block_size, else those that explain how many ids the prompts
// have (Mooncake: 512). Times of a calendar or since 1970 become times since the first request.
// Throws Error "WHERE:LINE: ..".
Trace parse_trace(std::string_view text, std::string_view where);

// The file, plain or gzip.
Trace read_trace(const std::string& path);

}  // namespace ridge
