// The events of the live stream as text (docs/page.md, "The live stream"): each function gives one
// server-sent event. Written without a JSON library, because the low-priority thread that calls
// them shares the CPU with an engine.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/json.h"
#include "engine/account/ledger.h"
#include "live/live_steps.h"
#include "serving/cache_snapshot.h"
#include "serving/live_feed.h"

namespace ridge {

// "event: NAME\ndata: {...}\n\n"
std::string live_event(const char* name, const std::string& json);

// Seconds are since `start`.
std::string steps_event(std::span<const StepGroup> groups, int dropped,
                        ServingClock::time_point start);
std::string requests_event(std::span<const RequestEvent> events, int dropped,
                           ServingClock::time_point start);

// The pages that differ between what listeners know and a snapshot, as runs. Those told are copied
// into `known`, the rest comes later: at most `most_bytes` of changes are told, beginning behind
// `from`, which moves on. "" where nothing differs.
std::string pages_event(std::vector<CacheSnapshot::Page>& known, const CacheSnapshot& now,
                        size_t& from, size_t most_bytes);
std::string all_pages_event(std::span<const CacheSnapshot::Page> known, const CacheSnapshot& now);

inline constexpr size_t kMaxTreeNodes = 200;
std::string tree_event(std::span<const CacheSnapshot::Node> nodes, int page_tokens);

// `account` is of this one step.
std::string profile_event(const LiveFeed::TimedStep& step, const Account& account,
                          ServingClock::time_point start);

}  // namespace ridge
