// What the page's animations draw: traces of the engine's own parts, as lists of events.
#pragma once

#include "page/api.h"

namespace ridge {

inline constexpr ApiOptionHelp kAttentionOptions[] = {
    {"n", "Keys of the row that is traced, 8 to 256"},
    {"block", "Keys of one tile of the trace"},
    {"seed", "Of the traced row's random values"},
};
// "forms": what attention moves and takes for the request's prompt, with its scores stored
// ("plain") and in tiles ("tiled"). "row": one small query row computed both ways, block by block.
Json attention_trace(const ApiOptions& given);

inline constexpr ApiOptionHelp kPageOptions[] = {
    {"script", "Events, comma-separated: append A 40, fork A B, finish A"},
    {"pages", "Pages of the pool, 1 to 256"},
};
// A PagePool under the script: every page that is acquired, written, shared, copied and released.
Json page_trace(const ApiOptions& given);

inline constexpr ApiOptionHelp kScheduleOptions[] = {
    {"policy", "static, continuous, chunked; comma-separated"},
    {"seats", "Sequences running at once, 1 to 16"},
    {"requests", "Requests that arrive, 4 to 32"},
    {"kv-tokens", "Tokens that the KV cache holds; as many as fit the memory where not given"},
    {"seed", "Of arrivals and lengths"},
    {"arrivals", "Instead of seeded ones: seconds:prompt:answer, comma-separated, at most 32"},
};
// The scheduler's rules over predicted step times: every step of every policy on the same requests.
Json schedule_trace(const ApiOptions& given);

inline constexpr ApiOptionHelp kSpeculationOptions[] = {
    {"rounds", "Rounds that are drawn, 1 to 64"},
    {"seed", "Of the accepted drafts"},
};
// Rounds of speculative decoding with drafts accepted at random, and the predicted times of their
// parts.
Json speculation_trace(const ApiOptions& given);

}  // namespace ridge
