#include "load/workload.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <numbers>

#include "base/error.h"
#include "base/random.h"

namespace ridge {
namespace {

constexpr int kMaxTokens = 10'000'000;

// Keeps the draws of different kinds apart.
enum Draw : uint64_t { kPromptLength = 1, kOutputLength, kGap, kPromptToken, kPrefixToken };

// The n-th uniform number in [0, 1) of one kind for one request.
double uniform_at(uint64_t seed, Draw draw, uint64_t index, uint64_t n) {
  return unit_interval(hash64(splitmix64(seed) + draw, index, n));
}

// Box and Muller.
double normal_at(uint64_t seed, Draw draw, uint64_t index, uint64_t n) {
  const double radius = std::sqrt(-2 * std::log(1 - uniform_at(seed, draw, index, 2 * n)));
  return radius * std::cos(2 * std::numbers::pi * uniform_at(seed, draw, index, 2 * n + 1));
}

// Gamma with mean 1: Marsaglia and Tsang, "A simple method for generating gamma variables" (2000).
// A shape below 1 is that of shape + 1 times a power of a uniform number.
double gamma_at(uint64_t seed, uint64_t index, double shape) {
  const double boosted = shape < 1 ? shape + 1 : shape;
  const double d = boosted - 1. / 3, c = 1 / std::sqrt(9 * d);
  for (uint64_t n = 1;; ++n) {
    const double x = normal_at(seed, kGap, index, 2 * n);
    const double v = std::pow(1 + c * x, 3);
    const double u = 1 - uniform_at(seed, kGap, index, 4 * n + 2);
    if (v <= 0 || std::log(u) >= x * x / 2 + d - d * v + d * std::log(v)) continue;
    const double power = shape < 1 ? std::pow(1 - uniform_at(seed, kGap, index, 0), 1 / shape) : 1;
    return d * v * power / shape;
  }
}

double parse_number(std::string_view text, std::string_view whole, std::string_view option) {
  double value = 0;
  const char* end = text.data() + text.size();
  const auto [read, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || read != end || !std::isfinite(value)) {
    throw OptionError(std::string(option),
                      fmt::format("--{} {}: a length is 512, 100..900 or lognormal:512,0.8 "
                                  "(median, sigma)",
                                  option, whole));
  }
  return value;
}

}  // namespace

int LengthSpec::draw(double uniform, double normal) const {
  switch (kind) {
    case Kind::fixed:
      return static_cast<int>(low);
    case Kind::uniform:
      return static_cast<int>(low + std::floor(uniform * (high - low + 1)));
    case Kind::lognormal:
      break;
  }
  return static_cast<int>(std::clamp(std::round(median * std::exp(sigma * normal)), low, high));
}

LengthSpec parse_length(std::string_view text, std::string_view option) {
  const auto number = [&](std::string_view part) { return parse_number(part, text, option); };
  LengthSpec spec;
  constexpr std::string_view kLognormal = "lognormal:";
  if (text.starts_with(kLognormal)) {
    const std::string_view rest = text.substr(kLognormal.size());
    const size_t comma = std::min(rest.find(','), rest.size());
    spec.kind = LengthSpec::Kind::lognormal;
    spec.median = number(rest.substr(0, comma));
    spec.sigma = number(rest.substr(std::min(comma + 1, rest.size())));
    if (spec.sigma < 0 || spec.sigma > 3) {
      throw OptionError(std::string(option),
                        fmt::format("--{} {}: sigma must be from 0 to 3", option, text));
    }
    spec.low = std::max(1., std::floor(spec.median * std::exp(-3 * spec.sigma)));
    spec.high = std::ceil(spec.median * std::exp(3 * spec.sigma));
  } else if (const size_t dots = text.find(".."); dots != std::string_view::npos) {
    spec.kind = LengthSpec::Kind::uniform;
    spec.low = number(text.substr(0, dots));
    spec.high = number(text.substr(dots + 2));
  } else {
    spec.low = spec.high = number(text);
  }
  if (spec.low < 1 || spec.high < spec.low || spec.high > kMaxTokens ||
      spec.low != std::floor(spec.low) || spec.high != std::floor(spec.high)) {
    throw OptionError(std::string(option),
                      fmt::format("--{} {}: whole tokens, from 1 to {}, the smaller number first",
                                  option, text, kMaxTokens));
  }
  return spec;
}

Workload::Workload(WorkloadOptions options) : options_(std::move(options)) {
  const size_t count = static_cast<size_t>(conversations());
  arrivals_.assign(count, 0);
  if (options_.rate > 0) {
    double time = 0;
    for (size_t i = 0; i < count; ++i) {
      arrivals_[i] = time += gamma_at(options_.seed, i, options_.burstiness);
    }
    const double scale = double(count) / options_.rate / time;
    for (double& arrival : arrivals_) arrival *= scale;
  } else {
    for (size_t i = 0; i < count && !options_.trace.empty(); ++i) {
      arrivals_[i] = trace_row(int(i), 0)->arrival_s - options_.trace.front().arrival_s;
    }
  }
}

int Workload::conversations() const {
  return (options_.requests + options_.turns - 1) / options_.turns;
}

int Workload::turns(int conversation) const {
  return std::min(options_.turns, options_.requests - conversation * options_.turns);
}

const TraceRow* Workload::trace_row(int conversation, int turn) const {
  if (options_.trace.empty()) return nullptr;
  return &options_.trace[size_t(conversation * options_.turns + turn) % options_.trace.size()];
}

int Workload::prompt_tokens(int conversation, int turn) const {
  if (const TraceRow* row = trace_row(conversation, turn)) return row->prompt_tokens;
  const auto index = uint64_t(conversation) * uint64_t(options_.turns) + uint64_t(turn);
  return options_.prompt.draw(uniform_at(options_.seed, kPromptLength, index, 0),
                              normal_at(options_.seed, kPromptLength, index, 0));
}

int Workload::output_tokens(int conversation, int turn) const {
  if (const TraceRow* row = trace_row(conversation, turn)) return row->output_tokens;
  const auto index = uint64_t(conversation) * uint64_t(options_.turns) + uint64_t(turn);
  return options_.output.draw(uniform_at(options_.seed, kOutputLength, index, 0),
                              normal_at(options_.seed, kOutputLength, index, 0));
}

int Workload::longest_request() const {
  int longest = options_.prompt.longest() + options_.output.longest();
  if (!options_.trace.empty()) longest = 0;
  for (const TraceRow& row : options_.trace) {
    longest = std::max(longest, row.prompt_tokens + row.output_tokens);
  }
  return longest + prefix_tokens();
}

std::vector<uint32_t> Workload::prefix(int conversation, uint32_t symbols) const {
  if (prefix_tokens() == 0) return {};
  const auto group = uint64_t(conversation % options_.prefix_groups);
  std::vector<uint32_t> tokens(static_cast<size_t>(prefix_tokens()));
  for (size_t i = 0; i < tokens.size(); ++i) {
    tokens[i] = uint32_t(uniform_at(options_.seed, kPrefixToken, group, i) * symbols);
  }
  return tokens;
}

std::vector<uint32_t> Workload::prompt(int conversation, int turn, uint32_t symbols) const {
  const auto index = uint64_t(conversation) * uint64_t(options_.turns) + uint64_t(turn);
  std::vector<uint32_t> tokens(static_cast<size_t>(prompt_tokens(conversation, turn)));
  for (size_t i = 0; i < tokens.size(); ++i) {
    tokens[i] = uint32_t(uniform_at(options_.seed, kPromptToken, index, i) * symbols);
  }
  return tokens;
}

const std::vector<std::string_view>& load_words() {
  static const std::vector<std::string_view> words{
      "the",   "of",    "and",  "to",    "in",    "is",     "that",   "for",  "it",    "was",
      "on",    "are",   "as",   "with",  "they",  "be",     "at",     "one",  "have",  "this",
      "from",  "or",    "had",  "by",    "not",   "but",    "what",   "some", "we",    "can",
      "out",   "other", "were", "all",   "there", "when",   "up",     "use",  "your",  "how",
      "said",  "an",    "each", "she",   "which", "do",     "their",  "time", "if",    "will",
      "way",   "about", "many", "then",  "them",  "write",  "would",  "like", "so",    "these",
      "her",   "long",  "make", "thing", "see",   "him",    "two",    "has",  "look",  "more",
      "day",   "could", "go",   "come",  "did",   "number", "sound",  "no",   "most",  "people",
      "my",    "over",  "know", "water", "than",  "call",   "first",  "who",  "may",   "down",
      "side",  "been",  "now",  "find",  "any",   "new",    "work",   "part", "take",  "get",
      "place", "made",  "live", "where", "after", "back",   "little", "only", "round", "man",
      "year",  "came",  "show", "every", "good",  "me",     "give",   "our",  "under", "name"};
  return words;
}

}  // namespace ridge
