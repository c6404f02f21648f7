#include "text/tokenizer/pretokenize.h"

#include "text/tokenizer/byte_level.h"
#include "text/tokenizer/normalize.h"
#include "text/tokenizer/utf8.h"

namespace ridge {
namespace {

struct Part {
  size_t begin, end;
  bool match;
};

// The whole word as matches and what lies between them.
void parts_of(std::string_view word, const std::vector<Match>& matches, bool invert,
              std::vector<Part>& parts) {
  parts.clear();
  size_t at = 0;
  for (const Match& match : matches) {
    if (match.begin > at) parts.push_back({at, match.begin, invert});
    parts.push_back({match.begin, match.end, !invert});
    at = match.end;
  }
  if (at < word.size()) parts.push_back({at, word.size(), invert});
}

// In place; as Hugging Face folds them.
void join_with_previous(std::vector<Part>& parts) {
  size_t kept = 0;
  bool last_match = false;
  for (const Part part : parts) {
    if (part.match && !last_match && kept > 0) {
      parts[kept - 1].end = part.end;
    } else {
      parts[kept++] = part;
    }
    last_match = part.match;
  }
  parts.resize(kept);
}

void join_with_next(std::vector<Part>& parts) {
  size_t kept = parts.size();
  bool last_match = false;
  for (size_t i = parts.size(); i-- > 0;) {
    const Part part = parts[i];
    if (part.match && !last_match && kept < parts.size()) {
      parts[kept].begin = part.begin;
    } else {
      parts[--kept] = part;
    }
    last_match = part.match;
  }
  parts.erase(parts.begin(), parts.begin() + static_cast<std::ptrdiff_t>(kept));
}

void join_alike(std::vector<Part>& parts) {
  size_t kept = 0;
  for (const Part part : parts) {
    if (kept > 0 && parts[kept - 1].match == part.match) {
      parts[kept - 1].end = part.end;
    } else {
      parts[kept++] = part;
    }
  }
  parts.resize(kept);
}

void join(std::vector<Part>& parts, SplitBehaviour behaviour) {
  switch (behaviour) {
    case SplitBehaviour::removed:
      std::erase_if(parts, [](const Part& part) { return part.match; });
      break;
    case SplitBehaviour::isolated:
      break;
    case SplitBehaviour::merged_with_previous:
      join_with_previous(parts);
      break;
    case SplitBehaviour::merged_with_next:
      join_with_next(parts);
      break;
    case SplitBehaviour::contiguous:
      join_alike(parts);
      break;
  }
}

// Each match and what lies between them as words of their own. In batches, because a long text may
// have a match for each of its characters.
void split_isolated(const Regex& regex, std::string_view word, std::vector<Match>& matches,
                    std::vector<std::string_view>& words, WorkLimit& work) {
  constexpr size_t kBatch = 4096;
  size_t at = 0;
  const auto add_up_to = [&](size_t end) {
    if (end > at) words.push_back(word.substr(at, end - at));
    at = end;
  };
  for (size_t from = 0; from != std::string_view::npos;) {
    matches.clear();
    from = regex.some_matches(word, from, kBatch, matches, work);
    for (const Match& match : matches) {
      add_up_to(match.begin);
      add_up_to(match.end);
    }
  }
  add_up_to(word.size());
}

}  // namespace

void PreTokenizer::split(Regex regex, SplitBehaviour behaviour, bool invert) {
  steps_.push_back({Kind::split, {std::move(regex)}, behaviour, invert, {}, PrefixSpace::never});
}

void PreTokenizer::byte_level(bool prefix_space, bool use_pattern, const std::string& where) {
  if (prefix_space) {
    Step step{Kind::prefix_space, {}, {}, false, " ", PrefixSpace::always};
    steps_.push_back(std::move(step));
  }
  if (use_pattern) split(Regex::pattern(kGpt2Pattern, where), SplitBehaviour::isolated);
  steps_.push_back({Kind::byte_characters, {}, {}, false, {}, PrefixSpace::never});
}

void PreTokenizer::metaspace(std::string mark, PrefixSpace prefix, bool splits,
                             const std::string& where) {
  Regex at_mark = Regex::literal(mark, where);
  steps_.push_back({Kind::mark_spaces, {}, {}, false, std::move(mark), prefix});
  if (splits) split(std::move(at_mark), SplitBehaviour::merged_with_next);
}

void PreTokenizer::split_all(const Step& step, Words& out, WorkLimit& work) {
  std::vector<std::string_view> words;
  words.reserve(out.words.size());
  std::vector<Match> matches;
  std::vector<Part> parts;
  for (std::string_view word : out.words) {
    if (step.behaviour == SplitBehaviour::isolated && out.valid) {
      split_isolated(step.regex[0], word, matches, words, work);
      continue;
    }
    matches.clear();
    step.regex[0].matches(word, out.valid, matches, work);
    parts_of(word, matches, step.invert, parts);
    join(parts, step.behaviour);
    for (const Part& part : parts) {
      if (part.end > part.begin) words.push_back(word.substr(part.begin, part.end - part.begin));
    }
  }
  out.words = std::move(words);
}

void PreTokenizer::rewrite(const Step& step, bool first, size_t most, Words& out, WorkLimit& work) {
  size_t bytes = 0;
  for (size_t i = 0; i < out.words.size(); ++i) {
    std::string_view& word = out.words[i];
    std::string text;
    if (step.kind == Kind::byte_characters) {
      text = to_byte_characters(word);
    } else {
      const bool marks = step.kind == Kind::mark_spaces;
      text = marks ? replace_all(word, " ", step.mark, most) : std::string(word);
      const bool asked = step.prefix == PrefixSpace::always ||
                         (step.prefix == PrefixSpace::first && first && i == 0);
      if (asked && !text.starts_with(step.mark)) text.insert(0, step.mark);
    }
    bytes += text.size();
    check_growth(bytes, most);
    work.spend(1 + text.size() / kCopiedPerStep);
    word = out.rewritten.emplace_back(std::move(text));
  }
  if (step.kind == Kind::byte_characters) out.valid = true;
}

void PreTokenizer::apply(std::string_view text, bool first, bool bytes_late, size_t most,
                         Words& out, WorkLimit& work) const {
  out.rewritten.clear();
  out.words.assign(1, text);
  out.valid = utf8_valid_end(text, 0) == text.size();
  out.as_bytes = false;
  for (size_t i = 0; i < steps_.size(); ++i) {
    const Step& step = steps_[i];
    const bool last = i + 1 == steps_.size();
    if (step.kind == Kind::split) {
      split_all(step, out, work);
    } else if (step.kind == Kind::byte_characters && last && bytes_late) {
      out.as_bytes = true;
    } else {
      rewrite(step, first, most, out, work);
    }
  }
}

}  // namespace ridge
