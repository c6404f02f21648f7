#include "text/chat/chat_template.h"

#include <algorithm>
#include <array>
#include <map>

#include "base/error.h"
#include "text/chat/interpreter.h"

namespace ridge {
namespace {

using jinja::Block;
using jinja::Expr;
using jinja::ExprKind;
using jinja::Origin;
using jinja::Statement;
using jinja::StatementKind;
using jinja::Text;
using jinja::Value;

// Roles that count as the template's own words: some templates write '<|' + role + '|>', which must
// become one special token. No other role can forge one.
constexpr std::array<std::string_view, 9> kRoles = {"system",    "developer", "user",
                                                    "assistant", "tool",      "function",
                                                    "ipython",   "model",     "observation"};

// Calls `see` for every statement and every expression.
template <typename See>
void walk(const Expr& expr, const See& see) {
  see(expr);
  for (const auto& part : expr.parts) {
    if (part) walk(*part, see);
  }
  for (const auto& [name, value] : expr.named) walk(*value, see);
}
template <typename See>
void walk(const Block& block, const See& see) {
  for (const Statement& statement : block) {
    see(statement);
    for (const auto& expr : statement.exprs) {
      if (expr) walk(*expr, see);
    }
    for (const Block& body : statement.bodies) walk(body, see);
  }
}

// message.content, message['content'], or a variable of that name.
bool names_content(const Expr& expr) {
  const auto is_it = [](const Value& value) {
    return value.text() && value.text()->bytes() == "content";
  };
  if (expr.kind == ExprKind::name || expr.kind == ExprKind::attribute) return is_it(expr.constant);
  return expr.kind == ExprKind::item && is_it(expr.parts[1]->constant);
}

// What a template does with a message's content.
struct ContentUse {
  bool iterates = false, tests_for_string = false;
  void operator()(const Statement& statement) {
    if (statement.kind == StatementKind::loop && names_content(*statement.exprs[0]))
      iterates = true;
  }
  void operator()(const Expr& expr) {
    if (expr.kind == ExprKind::test && expr.name == "string" && names_content(*expr.parts[0])) {
      tests_for_string = true;
    }
  }
};

// A list of text parts as one string.
Value joined_parts(const Json& parts, size_t place) {
  Text text;
  for (const Json& part : parts) {
    const bool known = part.is_object() && part.contains("text") && part["text"].is_string() &&
                       part.value("type", Json()) == "text";
    if (!known) throw Error("messages[{}].content: only parts of type text are supported", place);
    if (&part != &parts.front()) text.append("\n", Origin::of_template);
    text.append(part["text"].get_ref<const std::string&>(), Origin::of_request);
  }
  return text;
}

// Clients send a call's arguments as text; templates write objects.
Json with_parsed_arguments(Json calls) {
  if (!calls.is_array()) return calls;
  for (Json& call : calls) {
    if (!call.is_object() || !call.contains("function")) continue;
    Json& function = call["function"];
    if (!function.is_object() || !function.contains("arguments")) continue;
    Json& arguments = function["arguments"];
    if (!arguments.is_string()) continue;
    const auto& text = arguments.get_ref<const std::string&>();
    Json parsed = text.empty() ? Json::object() : Json::parse(text, nullptr, false);
    if (parsed.is_object()) arguments = std::move(parsed);
  }
  return calls;
}

jinja::TextPtr own_text(std::string_view text) {
  return std::make_shared<const Text>(text, Origin::of_template);
}

Text plain_text(const ChatRequest& request, const Value& messages) {
  Text text;
  for (const Value& message : messages.list()->items) {
    text.append(capitalize(*message.dict()->find("role")->text()));
    text.append(": ", Origin::of_template);
    const Value* content = message.dict()->find("content");
    if (content && content->text()) text.append(*content->text());
    text.append("\n", Origin::of_template);
  }
  if (request.add_generation_prompt) text.append("Assistant:", Origin::of_template);
  return text;
}

// Up to the end of the last message's content: of the last bytes that the request wrote, if these
// are the end of that content. Templates strip it, and some leave its beginning out.
Text cut_after_content(const Text& text, const Json& content) {
  size_t end = text.size();
  while (end > 0 && text.origin(end - 1) != Origin::of_request) --end;
  size_t begin = end;
  while (begin > 0 && text.origin(begin - 1) == Origin::of_request) --begin;
  const auto stripped = [](const Text& whole) { return strip(whole, true, true, nullptr); };
  const Text wanted =
      stripped(content.is_string() ? Text(content.get_ref<const std::string&>(), Origin::of_request)
                                   : Text());
  const Text found = stripped(text.slice(begin, end));
  if (found.empty() || !wanted.bytes().ends_with(found.bytes())) {
    throw Error("the last message cannot be continued: the template does not end with its content");
  }
  return text.slice(0, end);
}

}  // namespace

ChatTemplate::Program ChatTemplate::compile(const std::string& source) {
  Program program;
  try {
    program.block = jinja::parse(source);
  } catch (const Error& error) {
    throw Error("chat template, {}", error.what());
  }
  ContentUse use;
  walk(program.block, [&](const auto& node) { use(node); });
  program.takes_parts = use.iterates;
  program.takes_strings = !use.iterates || use.tests_for_string;
  program.knows_developer = source.find("developer") != source.npos;
  return program;
}

ChatTemplate::ChatTemplate(const Tokenizer& tokenizer) : tokenizer_(tokenizer) {
  const std::string& tools = tokenizer.tool_template;
  has_template_ = !tokenizer.chat_template.empty();
  has_tool_template_ = !tools.empty();
  plain_ = compile(tokenizer.chat_template);
  with_tools_ = compile(tools);
  tool_call_style_ = find_tool_call_style(has_tool_template_ ? tools : tokenizer.chat_template);
}

jinja::Value ChatTemplate::messages_value(Json messages, const Program& program) {
  if (!messages.is_array()) throw Error("messages must be a list");
  std::vector<Value> values;
  values.reserve(messages.size());
  std::map<std::pair<std::string, Origin>, jinja::TextPtr> words;  // keys and roles, each once
  const auto word = [&](const std::string& text, Origin origin) {
    jinja::TextPtr& known = words[{text, origin}];
    if (!known) known = std::make_shared<const Text>(text, origin);
    return known;
  };
  for (size_t i = 0; i < messages.size(); ++i) {
    Json message = std::move(messages[i]);
    if (!message.is_object() || !message.contains("role") || !message["role"].is_string()) {
      throw Error("messages[{}] must be an object with a role", i);
    }
    auto dict = std::make_shared<jinja::Dict>();
    for (auto& [key, json] : message.get_ref<Json::object_t&>()) {
      Value value;
      if (key == "role") {
        std::string role = json.get<std::string>();
        if (role == "developer" && !program.knows_developer) role = "system";
        const bool known = std::find(kRoles.begin(), kRoles.end(), role) != kRoles.end();
        value = word(role, known ? Origin::of_template : Origin::of_request);
      } else if (key == "content" && json.is_array() && !program.takes_parts) {
        value = joined_parts(json, i);
      } else if (key == "content" && json.is_string() && !program.takes_strings) {
        value =
            jinja::from_json(Json::array({{{"type", "text"}, {"text", json}}}), Origin::of_request);
      } else {
        value =
            jinja::from_json(key == "tool_calls" ? with_parsed_arguments(std::move(json)) : json,
                             Origin::of_request);
      }
      dict->set(word(key, Origin::of_request), std::move(value));
    }
    values.emplace_back(std::shared_ptr<const jinja::Dict>(std::move(dict)));
  }
  return make_list(std::move(values));
}

jinja::Text ChatTemplate::render(ChatRequest& request,
                                 const std::function<bool()>& cancelled) const {
  const bool tools = request.tools.is_array() && !request.tools.empty();
  if (!request.tools.is_array() && !request.tools.is_null()) throw Error("tools must be a list");
  const Program& program = tools && has_tool_template_ ? with_tools_ : plain_;
  const Value messages = messages_value(std::move(request.messages), program);
  if (!has_template_ && !(tools && has_tool_template_)) return plain_text(request, messages);

  std::vector<std::pair<std::string, Value>> variables;
  const auto token = [&](const char* name, const std::optional<Token>& id) {
    if (id) variables.emplace_back(name, own_text(tokenizer_.piece(*id)));
  };
  token("bos_token", tokenizer_.bos);
  token("eos_token", tokenizer_.eos);
  if (!request.template_kwargs.is_null()) {
    if (!request.template_kwargs.is_object()) throw Error("chat_template_kwargs must be an object");
    for (const auto& [name, json] : request.template_kwargs.items()) {
      variables.emplace_back(name, jinja::from_json(json, Origin::of_request));
    }
  }
  // After them, so that no further variable replaces these.
  variables.emplace_back("messages", messages);
  variables.emplace_back(
      "tools", tools ? jinja::from_json(request.tools, Origin::of_request) : Value(jinja::None{}));
  request.tools = nullptr;
  variables.emplace_back("documents", jinja::None{});
  variables.emplace_back("add_generation_prompt", request.add_generation_prompt);
  size_t bytes = 0;
  for (const auto& [name, value] : variables) bytes += jinja::extent(value).bytes;
  WorkLimit work("the chat template", template_steps(bytes), WorkLimit::kNoTimeLimit, cancelled);
  try {
    return run_template(program.block, std::move(variables), request.now, work);
  } catch (const WorkLimitError&) {
    throw;
  } catch (const Error& error) {
    throw Error("chat template, {}", error.what());
  }
}

jinja::Text ChatTemplate::whole_text(ChatRequest& request,
                                     const std::function<bool()>& cancelled) const {
  if (!request.continue_final_message) return render(request, cancelled);
  const Json content = request.messages.back().value("content", Json());
  return cut_after_content(render(request, cancelled), content);
}

std::string ChatTemplate::text(ChatRequest request) const {
  return whole_text(request, {}).bytes();
}

std::vector<Token> ChatTemplate::tokens(ChatRequest request,
                                        const std::function<bool()>& cancelled) const {
  const Text text = whole_text(request, cancelled);
  std::vector<TextPart> parts;
  for (size_t begin = 0, end = 0; begin < text.size(); begin = end) {
    while (end < text.size() && text.origin(end) == text.origin(begin)) ++end;
    parts.push_back({std::string_view(text.bytes()).substr(begin, end - begin),
                     text.origin(begin) == Origin::of_template});
  }
  std::vector<Token> tokens = tokenizer_.encode(parts, cancelled);
  const auto& bos = tokenizer_.bos;
  if (tokenizer_.adds_bos && bos && (tokens.empty() || tokens[0] != *bos)) {
    tokens.insert(tokens.begin(), *bos);
  }
  return tokens;
}

std::vector<Token> chat_tokens(const Tokenizer& tokenizer, std::span<const ChatMessage> messages) {
  ChatRequest request;
  request.messages = Json::array();
  for (const ChatMessage& message : messages) {
    request.messages.push_back({{"role", message.role}, {"content", message.content}});
  }
  return ChatTemplate(tokenizer).tokens(request);
}

}  // namespace ridge
