#define PCRE2_CODE_UNIT_WIDTH 8
#include "text/tokenizer/regex.h"

#include <pcre2.h>

#include <algorithm>

#include "base/error.h"
#include "text/tokenizer/utf8.h"

namespace ridge {
namespace {

// A pattern from a file may backtrack without end. Real ones need about a step a byte where they
// backtrack at all.
constexpr uint64_t kMatchStepsPerByte = 16;
constexpr uint32_t kMaxHeapKib = 1u << 18;
constexpr size_t kJitStackStart = 64 << 10, kJitStackMost = 64 << 20;
constexpr size_t kMaxPattern = 64 << 10;

// What a match needs beside the pattern: one for each thread.
struct Scratch {
  pcre2_match_data* data = pcre2_match_data_create(1, nullptr);
  pcre2_match_context* context = pcre2_match_context_create(nullptr);
  pcre2_jit_stack* stack = pcre2_jit_stack_create(kJitStackStart, kJitStackMost, nullptr);

  Scratch() {
    pcre2_set_heap_limit(context, kMaxHeapKib);
    if (stack != nullptr) pcre2_jit_stack_assign(context, nullptr, stack);
  }
  ~Scratch() {
    pcre2_jit_stack_free(stack);
    pcre2_match_context_free(context);
    pcre2_match_data_free(data);
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
};

Scratch& scratch() {
  thread_local Scratch kScratch;
  return kScratch;
}

std::string message_of(int code) {
  char text[256];
  pcre2_get_error_message(code, reinterpret_cast<PCRE2_UCHAR*>(text), sizeof(text));
  return text;
}

}  // namespace

struct Regex::Code {
  pcre2_code* code = nullptr;
  std::string where;

  Code(std::string_view pattern, uint32_t options, const std::string& from) : where(from) {
    if (pattern.size() > kMaxPattern) {
      throw Error("{}: a pattern of {} bytes, at most {} are read", where, pattern.size(),
                  kMaxPattern);
    }
    int error = 0;
    PCRE2_SIZE offset = 0;
    code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(), options,
                         &error, &offset, nullptr);
    if (code == nullptr) {
      throw Error("{}: pattern '{}' is not understood: {}", where, pattern.substr(0, 100),
                  message_of(error));
    }
    // Without executable memory the interpreter does the same, slower.
    pcre2_jit_compile(code, PCRE2_JIT_COMPLETE);
  }
  ~Code() { pcre2_code_free(code); }
  Code(const Code&) = delete;
  Code& operator=(const Code&) = delete;
};

Regex Regex::pattern(std::string_view pattern, const std::string& where) {
  // \C would cut characters apart.
  const uint32_t options = PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C;
  return Regex(std::make_shared<const Code>(pcre_from_onig(pattern, where), options, where));
}

Regex Regex::literal(std::string_view text, const std::string& where) {
  return Regex(std::make_shared<const Code>(text, PCRE2_UTF | PCRE2_LITERAL, where));
}

size_t Regex::some_matches(std::string_view text, size_t from, size_t most,
                           std::vector<Match>& found, WorkLimit& work) const {
  Scratch& own = scratch();
  const uint64_t steps = kMaxMatchSteps + kMatchStepsPerByte * text.size();
  pcre2_set_match_limit(own.context, static_cast<uint32_t>(std::min<uint64_t>(steps, UINT32_MAX)));
  const auto* subject = reinterpret_cast<PCRE2_SPTR>(text.data());
  const PCRE2_SIZE* span = pcre2_get_ovector_pointer(own.data);
  // Checked once by the caller: PCRE2 would check the rest of the text at every match.
  constexpr uint32_t kOptions = PCRE2_NO_UTF_CHECK;
  for (size_t at = from; at <= text.size();) {
    if (most-- == 0) return at;
    work.spend();
    int result =
        pcre2_match(code_->code, subject, text.size(), at, kOptions, own.data, own.context);
    if (result == PCRE2_ERROR_JIT_STACKLIMIT) {  // the interpreter has the heap
      result = pcre2_match(code_->code, subject, text.size(), at, kOptions | PCRE2_NO_JIT, own.data,
                           own.context);
    }
    if (result == PCRE2_ERROR_NOMATCH) break;
    if (result < 0) {
      throw Error("{}: a pattern cannot be matched on this text: {}", code_->where,
                  message_of(result));
    }
    // \K may put the start after the end or before what was matched already.
    if (span[0] > span[1] || span[0] < at) {
      throw Error("{}: a pattern that matches backwards (\\K) is not supported", code_->where);
    }
    found.push_back({span[0], span[1]});
    at = span[1] > span[0]       ? span[1]
         : span[1] < text.size() ? span[1] + utf8_step(text, span[1])
                                 : text.size() + 1;
  }
  return std::string_view::npos;
}

void Regex::matches(std::string_view text, bool valid, std::vector<Match>& found,
                    WorkLimit& work) const {
  if (valid) {
    some_matches(text, 0, SIZE_MAX, found, work);
    return;
  }
  for (size_t at = 0; at < text.size();) {
    const size_t end = utf8_valid_end(text, at), before = found.size();
    if (end > at) some_matches(text.substr(at, end - at), 0, SIZE_MAX, found, work);
    for (size_t i = before; i < found.size(); ++i) {
      found[i] = {at + found[i].begin, at + found[i].end};
    }
    at = end > at ? end : at + 1;
  }
}

}  // namespace ridge
