// What a run reached, in words, tables and JSON.
#pragma once

#include <string>

#include "base/json.h"
#include "engine/generate/generate.h"

namespace ridge {

// "37 tokens at 26.1 tok/s (38.3 ms each), 57.4 GB/s, 93 % of the roof of memory; wall: memory"
std::string run_line(const Runner& runner, const Generated& made, const System& system);
// Of a runner with ranks: whose figures an account has, and the link of its collectives.
std::string ranks_line(const Runner& runner, const System& system);
// Operators of both phases, predicted beside measured.
std::string profile_text(const Runner& runner, const Generated& made, const System& system);
// The operators of generation alone, in a narrower table.
std::string decode_text(const Runner& runner, const Generated& made, const System& system);
// Lines of at most `width` characters, cut at spaces.
std::string wrap(std::string_view text, size_t width);
Json run_json(const Runner& runner, const Generated& made, size_t prompt_tokens,
              const System& system);
Json account_json(const Account& account);
// Both phases' operators, as chrome://tracing and Perfetto read them.
std::string chrome_trace(const Generated& made);

}  // namespace ridge
