#include "live/live_json.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>

namespace ridge {
namespace {

using Text = std::string;

double seconds_since(ServingClock::time_point start, ServingClock::time_point at) {
  return std::chrono::duration<double>(at - start).count();
}

// Six digits are more than clocks give; `null` where a number is not known.
void put_number(Text& to, double value) {
  if (std::isfinite(value)) {
    fmt::format_to(std::back_inserter(to), "{:.6g}", value);
  } else {
    to += "null";
  }
}
void put_known(Text& to, const char* name, double value) {  // 0: not known
  fmt::format_to(std::back_inserter(to), ",\"{}\":", name);
  put_number(to, value > 0 ? value : std::nan(""));
}
void put_int(Text& to, const char* name, int64_t value) {
  fmt::format_to(std::back_inserter(to), ",\"{}\":{}", name, value);
}
void put_value(Text& to, const char* name, double value) {
  fmt::format_to(std::back_inserter(to), ",\"{}\":", name);
  put_number(to, value);
}
void end_list(Text& to, char close) {  // every element was written with a comma behind it
  if (to.back() == ',') to.pop_back();
  to += close;
}

void put_row(Text& to, const StepRow& row) {
  constexpr const char* kKinds[] = {"prefill", "decode", "draft"};
  fmt::format_to(std::back_inserter(to), "[{},\"{}\",{}", row.id, kKinds[size_t(row.kind)],
                 row.tokens);
  if (row.kind == StepRow::Kind::draft) {
    fmt::format_to(std::back_inserter(to), ",{},{}", row.accepted, row.drafts);
  }
  to += "],";
}

void put_group(Text& to, const StepGroup& group, ServingClock::time_point start) {
  const StepReport& s = group.sum;
  fmt::format_to(std::back_inserter(to), "{{\"at_s\":{:.6f},\"until_s\":{:.6f},\"steps\":{}",
                 seconds_since(start, s.began), seconds_since(start, s.ended), group.steps);
  if (group.replica >= 0) put_int(to, "replica", group.replica);
  put_value(to, "measured_s", s.measured_s);
  put_known(to, "predicted_s", s.predicted_s);
  put_known(to, "roof_s", s.roof_s);
  put_value(to, "gap_s", s.host_gap_s);
  if (s.roof_s > 0) {
    fmt::format_to(std::back_inserter(to), ",\"wall\":\"{}\"", wall_name(group.wall()));
  } else {
    to += ",\"wall\":null";
  }
  put_known(to, "flops", s.flops);
  put_known(to, "bytes", s.bytes);
  put_int(to, "prefill_tokens", s.prefill_tokens);
  put_int(to, "prefill_sequences", s.prefill_sequences);
  put_int(to, "decode_sequences", s.decode_sequences);
  put_int(to, "draft_tokens", s.draft_tokens);
  put_int(to, "accepted_tokens", s.accepted_tokens);
  put_int(to, "generated_tokens", s.generated_tokens);
  put_int(to, "preempted", s.preempted);
  put_int(to, "running", s.running);
  put_int(to, "waiting", s.waiting);
  to += ",\"rows\":[";
  for (const StepRow& row : group.rows) put_row(to, row);
  end_list(to, ']');
  to += "},";
}

const char* stage_name(const RequestEvent& event) {
  switch (event.stage) {
    case RequestEvent::Stage::arrived:
      return "arrived";
    case RequestEvent::Stage::admitted:
      return "admitted";
    case RequestEvent::Stage::preempted:
      return "preempted";
    case RequestEvent::Stage::first_token:
      return "first_token";
    case RequestEvent::Stage::ended:
      break;
  }
  if (event.end == EndReason::cancelled) return "cancelled";
  return event.end == EndReason::failed ? "failed" : "finished";
}

void put_request(Text& to, const RequestEvent& event, ServingClock::time_point start) {
  using Stage = RequestEvent::Stage;
  fmt::format_to(std::back_inserter(to), "{{\"id\":{},\"at_s\":{:.6f},\"event\":\"{}\"", event.id,
                 seconds_since(start, event.at), stage_name(event));
  put_int(to, "prompt_tokens", event.prompt_tokens);
  if (event.stage != Stage::arrived) put_int(to, "cached_tokens", event.cached_tokens);
  if (event.stage == Stage::preempted || event.stage == Stage::ended) {
    put_int(to, "generated_tokens", event.generated_tokens);
  }
  if (event.stage == Stage::ended) {
    fmt::format_to(std::back_inserter(to), ",\"end\":\"{}\"", end_reason_name(event.end));
  }
  to += "},";
}

void put_run(Text& to, size_t first, size_t count, const CacheSnapshot::Page& page) {
  fmt::format_to(std::back_inserter(to), "[{},{},{},{}],", first, count, page.owner, page.sharers);
}

Text pages_text(bool full, Text changes, int left_out, const CacheSnapshot& now) {
  if (!changes.empty()) changes.pop_back();
  return live_event("pages", fmt::format("{{\"full\":{},\"changes\":[{}],\"left_out\":{},"
                                         "\"free\":{},\"cached\":{},\"held\":{}}}",
                                         full, changes, left_out, now.free, now.cached, now.held));
}

// A run of the prefix tree: pages one below the other without a branch, all locked equally often.
struct TreeRun {
  int32_t first = 0;   // number of its first node
  int32_t parent = 0;  // number of the first node of the run above, plus 1; 0: a root
};

}  // namespace

std::string live_event(const char* name, const std::string& json) {
  return fmt::format("event: {}\ndata: {}\n\n", name, json);
}

std::string steps_event(std::span<const StepGroup> groups, int dropped,
                        ServingClock::time_point start) {
  Text text = "{\"steps\":[";
  for (const StepGroup& group : groups) put_group(text, group, start);
  end_list(text, ']');
  put_int(text, "dropped", dropped);
  return live_event("steps", text + '}');
}

std::string requests_event(std::span<const RequestEvent> events, int dropped,
                           ServingClock::time_point start) {
  Text text = "{\"requests\":[";
  for (const RequestEvent& event : events) put_request(text, event, start);
  end_list(text, ']');
  put_int(text, "dropped", dropped);
  return live_event("requests", text + '}');
}

std::string pages_event(std::vector<CacheSnapshot::Page>& known, const CacheSnapshot& now,
                        size_t& from, size_t most_bytes) {
  const size_t count = now.pages.size();
  Text changes;
  int left_out = 0;
  if (from >= count) from = 0;
  const size_t begin = from;
  for (size_t step = 0; step < count;) {
    const size_t page = (begin + step) % count;
    if (known[page] == now.pages[page]) {
      ++step;
      continue;
    }
    if (changes.size() >= most_bytes) {
      ++left_out;
      ++step;
      continue;
    }
    size_t length = 0;
    do {
      known[page + length] = now.pages[page];
      ++length;
    } while (page + length < count && step + length < count &&
             now.pages[page + length] == now.pages[page]);
    put_run(changes, page, length, now.pages[page]);
    step += length;
    from = page + length;
  }
  return changes.empty() ? "" : pages_text(false, std::move(changes), left_out, now);
}

std::string all_pages_event(std::span<const CacheSnapshot::Page> known, const CacheSnapshot& now) {
  Text changes;
  int left_out = 0;
  for (size_t page = 0; page < known.size(); ++page) left_out += known[page] != now.pages[page];
  for (size_t page = 0; page < known.size();) {
    size_t length = 1;
    while (page + length < known.size() && known[page + length] == known[page]) ++length;
    put_run(changes, page, length, known[page]);
    page += length;
  }
  return pages_text(true, std::move(changes), left_out, now);
}

std::string tree_event(std::span<const CacheSnapshot::Node> nodes, int page_tokens) {
  // Children of each node as linked lists, so that the walk is linear.
  const auto count = int32_t(nodes.size());
  std::vector<int32_t> first_child(nodes.size(), -1), next(nodes.size(), -1);
  std::vector<TreeRun> runs;  // breadth first, those told and those that are not
  for (int32_t i = count - 1; i >= 0; --i) {
    const CacheSnapshot::Node& node = nodes[size_t(i)];
    if (!node.used) continue;
    if (!nodes[size_t(node.parent)].used) {
      runs.push_back({.first = i});  // below a root
      continue;
    }
    next[size_t(i)] = first_child[size_t(node.parent)];
    first_child[size_t(node.parent)] = i;
  }
  std::reverse(runs.begin(), runs.end());
  Text text = "{\"nodes\":[";
  for (size_t r = 0; r < runs.size(); ++r) {
    int32_t last = runs[r].first;
    const int32_t locks = nodes[size_t(last)].locks;
    int pages = 1;
    for (;; ++pages) {
      const int32_t child = first_child[size_t(last)];
      const bool alone = child >= 0 && next[size_t(child)] < 0;
      if (!alone || nodes[size_t(child)].locks != locks) break;
      last = child;
    }
    for (int32_t c = first_child[size_t(last)]; c >= 0; c = next[size_t(c)]) {
      runs.push_back({.first = c, .parent = runs[r].first + 1});
    }
    if (r >= kMaxTreeNodes) continue;
    fmt::format_to(std::back_inserter(text),
                   "{{\"id\":{},\"parent\":{},\"pages\":{},\"tokens\":{},\"locked\":{}}},",
                   runs[r].first + 1, runs[r].parent, pages, pages * page_tokens, locks);
  }
  end_list(text, ']');
  put_int(text, "left_out", int64_t(runs.size()) - int64_t(std::min(runs.size(), kMaxTreeNodes)));
  return live_event("tree", text + '}');
}

std::string profile_event(const LiveFeed::TimedStep& step, const Account& account,
                          ServingClock::time_point start) {
  const bool timed = !step.operators.empty();
  double attributed = 0;
  for (const Profile::Entry& entry : step.operators) attributed += entry.seconds;
  Text text = fmt::format("{{\"at_s\":{:.6f},\"phase\":\"{}\"", seconds_since(start, step.began),
                          step.mixed ? "mixed" : "decode");
  put_value(text, "step_s", step.measured_s);
  put_value(text, "unattributed_s", timed ? step.measured_s - attributed : std::nan(""));
  text += ",\"ops\":[";
  for (const OperatorAccount& op : account.operators) {
    fmt::format_to(std::back_inserter(text), "{{\"name\":\"{}\"", op.name);
    put_value(text, "count", op.calls);
    put_value(text, "bytes", op.bytes);
    put_value(text, "flops", op.flops);
    put_value(text, "roof_s", op.roof_s);
    put_value(text, "expected_s", op.expected_s);
    put_known(text, "measured_s", timed ? op.measured_s : 0);
    fmt::format_to(std::back_inserter(text), ",\"wall\":\"{}\"}},", wall_name(op.wall));
  }
  end_list(text, ']');
  return live_event("profile", text + '}');
}

}  // namespace ridge
