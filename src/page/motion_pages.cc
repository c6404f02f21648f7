#include <fmt/format.h>

#include <map>
#include <sstream>

#include "base/error.h"
#include "engine/kv/pages.h"
#include "page/api_options.h"
#include "page/motion_api.h"

namespace ridge {
namespace {

constexpr int kTracePageTokens = 16, kMostTraceTokens = 4096;
constexpr size_t kMostScriptEvents = 64;
// Two samples of one prompt: the fork shares three pages, and the one that is partly filled is
// copied by whoever writes to it first. A second request reuses what the first gave back.
constexpr const char* kPageScript =
    "append A 40,fork A B,append B 12,append A 20,append C 24,finish A,append C 24,finish B";

// Sequences of a script over one pool, and what each did to the pages.
class PageTrace {
 public:
  PageTrace(int pages, double bytes_per_token)
      : bytes_per_token_(bytes_per_token), pool_(pages, kTracePageTokens) {}

  void run(const std::string& event) {
    std::istringstream words(event);
    std::string verb, first, second, rest;
    words >> verb >> first >> second >> rest;
    event_ = event;
    if (!rest.empty()) fail(event);
    if (verb == "append") {
      append(sequence_name(first, event), token_count(second, event));
    } else if (verb == "fork") {
      fork(sequence_name(first, event), sequence_name(second, event), event);
    } else if (verb == "finish" && second.empty()) {
      finish(sequence_name(first, event), event);
    } else {
      fail(event);
    }
  }

  Json take() { return std::move(list_); }

 private:
  [[noreturn]] static void fail(const std::string& event) {
    throw OptionError("script", fmt::format("'{}' is none of: append A 40, fork A B, finish A "
                                            "(names A to Z, 1 to {} tokens)",
                                            event.substr(0, 64), kMostTraceTokens));
  }
  static char sequence_name(const std::string& text, const std::string& event) {
    if (text.size() != 1 || text[0] < 'A' || text[0] > 'Z') fail(event);
    return text[0];
  }
  int token_count(const std::string& text, const std::string& event) {
    if (text.empty() || text.size() > 4) fail(event);
    int tokens = 0;
    for (const char c : text) {
      if (c < '0' || c > '9') fail(event);
      tokens = 10 * tokens + (c - '0');
    }
    tokens_ += tokens;
    if (tokens == 0 || tokens_ > kMostTraceTokens) fail(event);
    return tokens;
  }
  KvSequence& known(char name, const std::string& event) {
    const auto found = sequences_.find(name);
    if (found == sequences_.end()) {
      throw OptionError("script", fmt::format("'{}': there is no sequence {}", event, name));
    }
    return found->second;
  }

  // `tokens`: written in the page. `bytes`: moved by this event.
  void note(const char* kind, char sequence, int page, int tokens, double bytes, int from = -1) {
    list_.push_back({{"event", event_},
                     {"kind", kind},
                     {"sequence", std::string(1, sequence)},
                     {"page", page >= 0 ? Json(page) : Json()},
                     {"from", from >= 0 ? Json(from) : Json()},
                     {"tokens", tokens},
                     {"references", page >= 0 ? pool_.references(page) : 0},
                     {"bytes", bytes},
                     {"free", pool_.free()}});
  }

  // Page by page, as steps of a chunked prompt or of a decode would.
  void append(char name, int tokens) {
    KvSequence& s = sequences_.try_emplace(name, KvSequence(pool_)).first->second;
    while (tokens > 0) {
      const int used = s.length() % kTracePageTokens;
      const int now = std::min(tokens, kTracePageTokens - used);
      const size_t held = s.pages().size();
      std::vector<PageCopy> copies;
      if (!s.reserve(now, copies)) {
        note("refused", name, -1, now, 0);  // a scheduler would evict or preempt here
        return;
      }
      for (const PageCopy& copy : copies) {
        note("copy", name, copy.to, copy.tokens, copy.tokens * bytes_per_token_, copy.from);
      }
      if (s.pages().size() > held) note("acquire", name, s.pages().back(), 0, 0);
      s.commit(now);
      note("append", name, s.pages().back(), used + now, now * bytes_per_token_);
      tokens -= now;
    }
  }

  void fork(char from, char to, const std::string& event) {
    const KvSequence& source = known(from, event);
    if (sequences_.contains(to)) {
      throw OptionError("script", fmt::format("'{}': sequence {} exists already", event, to));
    }
    const KvSequence& copy = sequences_.emplace(to, source.fork()).first->second;
    for (size_t i = 0; i < copy.pages().size(); ++i) {
      const int before = int(i) * kTracePageTokens;
      note("share", to, copy.pages()[i], std::min(kTracePageTokens, copy.length() - before), 0);
    }
  }

  void finish(char name, const std::string& event) {
    KvSequence& s = known(name, event);
    while (s.length() > 0) {
      const int page = s.pages().back();
      const int tokens = (s.length() - 1) % kTracePageTokens + 1;
      s.truncate(s.length() - tokens);
      note("release", name, page, pool_.references(page) > 0 ? tokens : 0, 0);
    }
    sequences_.erase(name);
  }

  double bytes_per_token_;
  PagePool pool_;
  std::map<char, KvSequence> sequences_;  // they release their pages before the pool ends
  Json list_ = Json::array();
  std::string event_;
  int tokens_ = 0;
};

// Of the first layer that caches keys and values.
Json heads_json(const Model& model) {
  for (const LayerGroup& group : model.groups) {
    const Mixer& m = group.layer.mixer;
    if (m.kind == MixerKind::mla) {
      return {{"kind", "MLA"}, {"query", m.heads}, {"kv", 1}, {"width", m.kv_rank + m.rope_dim}};
    }
    if (m.kind != MixerKind::attention) continue;
    const char* kind = m.kv_heads == m.heads ? "MHA" : m.kv_heads == 1 ? "MQA" : "GQA";
    return {{"kind", kind}, {"query", m.heads}, {"kv", m.kv_heads}, {"width", 2 * m.head_dim}};
  }
  throw OptionError("model", model.name + " has no KV cache");
}

}  // namespace

Json page_trace(const ApiOptions& given) {
  const Request request = request_of(given, 1);
  const Model& model = *request.model;
  const Format& kv = request.plan.kv ? *request.plan.kv : model.kv_format;
  const double per_token = kv_bytes_per_token_full(model, kv);
  const int pages = whole_option(given, "pages", 16, 1, 256);
  const std::string* script = find_option(given, "script");
  std::istringstream events(script ? *script : kPageScript);
  PageTrace trace(pages, per_token);
  size_t count = 0;
  for (std::string event; std::getline(events, event, ',');) {
    if (++count > kMostScriptEvents) {
      throw OptionError("script", fmt::format("at most {} events", kMostScriptEvents));
    }
    trace.run(event);
  }
  const Prediction p = predict(request);
  return {{"model", model.name},
          {"kv", kv.name},
          {"heads", heads_json(model)},
          {"layers", model.layers()},
          {"pages", pages},
          {"page_tokens", kTracePageTokens},
          {"bytes_per_token", per_token},
          {"page_bytes", per_token * kTracePageTokens},
          {"max_context", model.max_context > 0 ? Json(model.max_context) : Json()},
          {"tpot_s", p.tpot_s()},
          {"max_batch", p.memory.capacity ? Json(p.memory.max_batch) : Json()},
          {"trace", trace.take()}};
}

}  // namespace ridge
