// Conversations as the common families of models write them. Templates are Jinja programs; nearly
// all are one of a few shapes, told apart by the marks they use.
#include <algorithm>

#include "engine/tokenizer/tokenizer.h"

namespace ridge {
namespace {

// What the template adds, in which special tokens count, and what people wrote, in which they do
// not.
class Script {
 public:
  Script& mark(std::string text) { return add(std::move(text), true); }
  Script& said(std::string_view text) { return add(std::string(text), false); }

  std::vector<Token> tokens(const Tokenizer& tokenizer) const {
    std::vector<TextPart> parts;
    for (const auto& [text, special] : parts_) parts.push_back({text, special});
    return tokenizer.encode_parts(parts);
  }

 private:
  Script& add(std::string text, bool special) {
    if (!text.empty()) parts_.emplace_back(std::move(text), special);
    return *this;
  }
  std::vector<std::pair<std::string, bool>> parts_;
};

struct Chat {
  const Tokenizer& tokenizer;
  std::span<const ChatMessage> messages;
  const std::string& form;  // the template
  Script script;

  bool has(std::string_view mark) const { return form.find(mark) != form.npos; }
  std::string eos() const {
    return tokenizer.eos ? std::string(tokenizer.piece(*tokenizer.eos)) : std::string("</s>");
  }
  bool starts_with_system() const { return !messages.empty() && messages[0].role == "system"; }
  // What is said, with the system's words before them where the family has no place of its own.
  std::span<const ChatMessage> turns() const {
    return starts_with_system() ? messages.subspan(1) : messages;
  }
};

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kSpaces = " \t\n\v\f\r";
  const size_t begin = text.find_first_not_of(kSpaces);
  if (begin == text.npos) return {};
  return text.substr(begin, text.find_last_not_of(kSpaces) - begin + 1);
}

void llama3(Chat& chat) {
  const auto turn = [&](std::string_view role, std::string_view words) {
    chat.script.mark("<|start_header_id|>").said(role).mark("<|end_header_id|>\n\n");
    chat.script.said(words);
  };
  // 3.1 and later always have a system turn; the date is the template's own default.
  if (chat.has("Cutting Knowledge Date")) {
    turn("system", "Cutting Knowledge Date: December 2023\nToday Date: 26 Jul 2024\n\n");
    if (chat.starts_with_system()) chat.script.said(trimmed(chat.messages[0].content));
    chat.script.mark("<|eot_id|>");
  } else if (chat.starts_with_system()) {
    turn("system", trimmed(chat.messages[0].content));
    chat.script.mark("<|eot_id|>");
  }
  for (const ChatMessage& message : chat.turns()) {
    turn(message.role, trimmed(message.content));
    chat.script.mark("<|eot_id|>");
  }
  turn("assistant", "");
}

// The system's words that a ChatML template brings itself: a literal between its marks.
std::string default_system(const std::string& form) {
  for (const std::string open : {"<|im_start|>system\\n", "<|im_start|>system\n"}) {
    for (size_t at = form.find(open); at != form.npos; at = form.find(open, at + 1)) {
      const size_t begin = at + open.size(), end = form.find("<|im_end|>", begin);
      if (end == form.npos) break;
      const std::string words = form.substr(begin, end - begin);
      if (!words.empty() && words.find_first_of("'\"{}\\") == words.npos) return words;
    }
  }
  return {};
}

void chatml(Chat& chat) {
  const auto turn = [&](std::string_view role, std::string_view words) {
    chat.script.mark("<|im_start|>").said(role).said("\n").said(words).mark("<|im_end|>\n");
  };
  const std::string system = default_system(chat.form);
  if (!chat.starts_with_system() && !system.empty()) turn("system", system);
  for (const ChatMessage& message : chat.messages) turn(message.role, message.content);
  chat.script.mark("<|im_start|>assistant\n");
}

void gemma(Chat& chat) {
  bool first = true;
  for (const ChatMessage& message : chat.turns()) {
    const bool model = message.role == "assistant";
    chat.script.mark("<start_of_turn>").said(model ? "model" : message.role).said("\n");
    if (first && chat.starts_with_system()) chat.script.said(chat.messages[0].content + "\n\n");
    chat.script.said(trimmed(message.content)).mark("<end_of_turn>\n");
    first = false;
  }
  chat.script.mark("<start_of_turn>model\n");
}

void llama2(Chat& chat, const std::string& bos) {
  bool first = true;
  for (const ChatMessage& message : chat.turns()) {
    if (message.role == "assistant") {
      chat.script.said(" ").said(trimmed(message.content)).said(" ").mark(chat.eos());
      continue;
    }
    if (!first) chat.script.mark(bos);
    chat.script.mark("[INST] ");
    if (first && chat.starts_with_system()) {
      chat.script.said("<<SYS>>\n" + chat.messages[0].content + "\n<</SYS>>\n\n");
    }
    chat.script.said(trimmed(message.content)).mark(" [/INST]");
    first = false;
  }
}

void mistral(Chat& chat) {
  // Versions differ in the spaces around the marks and in who hears the system.
  const bool space_in = chat.has("[INST] "), space_out = chat.has(" [/INST]");
  const bool space_before = chat.has("' ' + message") || chat.has("\" \" + message");
  const auto turns = chat.turns();
  size_t hearer = 0;
  for (size_t i = 0; chat.has("loop.last") && i < turns.size(); ++i) {
    if (turns[i].role != "assistant") hearer = i;
  }
  for (size_t i = 0; i < turns.size(); ++i) {
    if (turns[i].role == "assistant") {
      chat.script.said(space_before ? " " : "").said(turns[i].content).mark(chat.eos());
      continue;
    }
    chat.script.mark(space_in ? "[INST] " : "[INST]");
    if (i == hearer && chat.starts_with_system()) {
      chat.script.said(chat.messages[0].content + "\n\n");
    }
    chat.script.said(turns[i].content).mark(space_out ? " [/INST]" : "[/INST]");
  }
}

// Phi 3 and Zephyr: a mark for each role, and one that ends every turn.
void role_marks(Chat& chat, const std::string& end) {
  for (const ChatMessage& message : chat.messages) {
    chat.script.mark("<|" + message.role + "|>\n").said(message.content).mark(end + "\n");
  }
  chat.script.mark("<|assistant|>\n");
}

void deepseek(Chat& chat) {
  if (chat.starts_with_system()) chat.script.said(chat.messages[0].content);
  for (const ChatMessage& message : chat.turns()) {
    const bool assistant = message.role == "assistant";
    chat.script.mark(assistant ? "<｜Assistant｜>" : "<｜User｜>").said(message.content);
    if (assistant) chat.script.mark("<｜end▁of▁sentence｜>");
  }
  chat.script.mark("<｜Assistant｜>");
}

void plain(Chat& chat) {
  for (const ChatMessage& message : chat.messages) {
    std::string name = message.role;
    if (!name.empty() && name[0] >= 'a' && name[0] <= 'z') name[0] = char(name[0] - 'a' + 'A');
    chat.script.said(name + ": " + message.content + "\n");
  }
  chat.script.said("Assistant:");
}

void write(Chat& chat, const std::string& bos) {
  if (chat.has("<|start_header_id|>")) return llama3(chat);
  if (chat.has("<|im_start|>")) return chatml(chat);
  if (chat.has("<start_of_turn>")) return gemma(chat);
  if (chat.has("[INST]") && chat.has("<<SYS>>")) return llama2(chat, bos);
  if (chat.has("[INST]")) return mistral(chat);
  if (chat.has("<｜User｜>")) return deepseek(chat);
  if (chat.has("<|assistant|>"))
    return role_marks(chat, chat.has("<|end|>") ? "<|end|>" : chat.eos());
  plain(chat);
}

}  // namespace

std::vector<Token> chat_tokens(const Tokenizer& tokenizer, std::span<const ChatMessage> messages) {
  const std::string& form = tokenizer.chat_template;
  const bool in_form = form.find("bos_token") != form.npos;
  const bool begins = tokenizer.bos && (tokenizer.adds_bos || in_form);
  const std::string bos = begins ? std::string(tokenizer.piece(*tokenizer.bos)) : std::string();
  // As part of the text, as the template has it: what only happens at a text's start then does not
  // happen after it.
  if (begins && in_form) {
    Chat chat{tokenizer, messages, form, {}};
    chat.script.mark(bos);
    write(chat, bos);
    std::vector<Token> tokens = chat.script.tokens(tokenizer);
    if (!tokens.empty() && tokens[0] == *tokenizer.bos) return tokens;
  }
  Chat chat{tokenizer, messages, form, {}};
  write(chat, bos);
  std::vector<Token> tokens = chat.script.tokens(tokenizer);
  if (begins) tokens.insert(tokens.begin(), *tokenizer.bos);
  return tokens;
}

}  // namespace ridge
