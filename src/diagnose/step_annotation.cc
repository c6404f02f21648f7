#include <charconv>

#include "diagnose/timeline.h"

namespace ridge {
namespace {

// The number after `key`; 0 where the text does not have it.
double annotated_number(std::string_view text, std::string_view key) {
  const size_t at = text.find(key);
  if (at == text.npos) return 0;
  const std::string_view rest = text.substr(at + key.size());
  uint32_t value = 0;  // larger numbers are no token counts
  std::from_chars(rest.data(), rest.data() + rest.size(), value);
  return value;
}

// The tokens of "context_2(512)" or "context_2(sq512sk900...)": sq is the sum of query lengths.
double annotated_tokens(std::string_view text, std::string_view part) {
  const size_t at = text.find(part);
  if (at == text.npos) return 0;
  const size_t open = text.find('(', at);
  if (open == text.npos) return 0;
  const std::string_view inside = text.substr(open, text.find(')', open) - open);
  const double query = annotated_number(inside, "(sq");
  return query > 0 ? query : annotated_number(inside, "(");
}

bool step_begins(std::string_view text, std::string_view with) {
  return text.substr(0, with.size()) == with;
}

}  // namespace

StepAnnotation parse_step_annotation(std::string_view text) {
  StepAnnotation step;
  if (step_begins(text, "ProfilerStep#")) {
    step.source = StepAnnotation::Source::profiler;
  } else if (text == "gpu_model_runner: forward" || text == "Forward") {
    step.source = StepAnnotation::Source::forward;
  } else if (step_begins(text, "execute_") && text.find("context_") != text.npos) {
    step.source = StepAnnotation::Source::execute;
    step.prefill_tokens = annotated_tokens(text, "context_");
    step.decode_tokens = annotated_tokens(text, "generation_");
  } else if (step_begins(text, "step[")) {
    step.source = StepAnnotation::Source::engine;
    const double batch = annotated_number(text, "bs="), tokens = annotated_number(text, "toks=");
    if (step_begins(text, "step[DECODE")) step.decode_tokens = batch;
    if (step_begins(text, "step[EXTEND")) step.prefill_tokens = tokens;
    if (step_begins(text, "step[MIXED")) step.prefill_tokens = tokens;
  } else if (step_begins(text, "[Executor] _forward_step")) {
    step.source = StepAnnotation::Source::engine;
    step.decode_tokens = annotated_number(text, "ctx reqs, ");
  }
  return step;
}

}  // namespace ridge
