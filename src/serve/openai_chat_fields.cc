// The fields that only a chat has: messages, tools, tool_choice, response_format.
#include <algorithm>
#include <array>

#include "base/error.h"
#include "serve/openai_fields.h"
#include "serve/openai_request.h"

namespace ridge {
namespace {

[[noreturn]] void refuse_field(const char* name, const std::string& message) {
  throw OptionError(name, message);
}

// The value of a key that must be a string; null where it is missing.
const Json* string_in(const Json& object, const char* key, const char* field) {
  const auto found = object.find(key);
  if (found == object.end() || found->is_null()) return nullptr;
  if (!found->is_string()) refuse_field(field, fmt::format("{}: {} must be a string", field, key));
  return &*found;
}

// A string, or text parts, which are put on lines of their own as vLLM and llama.cpp do.
std::string text_of_content(const Json& content) {
  if (content.is_string()) return content.get<std::string>();
  if (!content.is_array()) refuse_field("messages", "a message's content must be text");
  std::string text;
  for (const Json& part : content) {
    const Json* kind = part.is_object() ? string_in(part, "type", "messages") : nullptr;
    const Json* words = kind && *kind == "text" ? string_in(part, "text", "messages") : nullptr;
    if (words == nullptr) {
      refuse_field("messages",
                   "messages: parts of a content must be {\"type\": \"text\", "
                   "\"text\": ...}; this model reads text only");
    }
    if (!text.empty()) text += '\n';
    text += words->get<std::string>();
  }
  return text;
}

// Templates want the arguments as an object; clients send them as text.
Json tool_calls_of(const Json& calls) {
  const auto fail = [] {
    refuse_field("messages",
                 "messages: tool_calls must be a list of {id, type, function: {name, "
                 "arguments}}, with the arguments as JSON text");
  };
  if (!calls.is_array()) fail();
  Json list = Json::array();
  for (const Json& call : calls) {
    const auto function = call.is_object() ? call.find("function") : call.end();
    if (!call.is_object() || function == call.end() || !function->is_object()) fail();
    const Json* name = string_in(*function, "name", "messages");
    if (name == nullptr) fail();
    Json arguments = function->value("arguments", Json::object());
    if (arguments.is_string()) {
      arguments = ordered_object(arguments.get<std::string>(), "messages");
    }
    if (!arguments.is_object()) fail();
    Json copy = {{"type", "function"},
                 {"function", {{"name", *name}, {"arguments", std::move(arguments)}}}};
    if (const Json* id = string_in(call, "id", "messages")) copy["id"] = *id;
    list.push_back(std::move(copy));
  }
  return list;
}

Json read_message(const Json& message) {
  if (!message.is_object()) refuse_field("messages", "messages must be a list of objects");
  const Json* role = string_in(message, "role", "messages");
  constexpr std::array<const char*, 5> kRoles{"system", "developer", "user", "assistant", "tool"};
  if (role == nullptr || std::none_of(kRoles.begin(), kRoles.end(),
                                      [&](const char* known) { return *role == known; })) {
    refuse_field("messages", "messages: a role must be system, developer, user, assistant or tool");
  }
  Json to = {{"role", *role}};
  const auto content = message.find("content");
  const auto calls = message.find("tool_calls");
  const bool has_calls = calls != message.end() && !calls->is_null() && !calls->empty();
  if (content != message.end() && !content->is_null()) {
    to["content"] = text_of_content(*content);
  } else if (*role == "assistant") {
    to["content"] = has_calls ? Json(nullptr) : Json("");
  } else {
    refuse_field("messages",
                 fmt::format("messages: a message of {} has no content", role->get<std::string>()));
  }
  if (has_calls) to["tool_calls"] = tool_calls_of(*calls);
  for (const char* key : {"name", "tool_call_id", "reasoning_content"}) {
    if (const Json* value = string_in(message, key, "messages")) to[key] = *value;
  }
  return to;
}

bool names_tool(const Json& tools, const std::string& name) {
  return std::any_of(tools.begin(), tools.end(),
                     [&](const Json& tool) { return tool["function"]["name"] == name; });
}

void read_tool_choice(const RequestFields& fields, OpenAiRequest& to) {
  const nlohmann::json* choice = fields.find("tool_choice");
  to.tool_choice = to.tools.empty() ? ToolChoice::none : ToolChoice::automatic;
  if (choice == nullptr) return;
  if (*choice == "none") {
    to.tool_choice = ToolChoice::none;
    return;
  }
  if (to.tools.empty()) refuse_field("tool_choice", "tool_choice needs tools");
  if (*choice == "auto") return;
  if (*choice == "required") {
    to.tool_choice = ToolChoice::required;
    return;
  }
  const nlohmann::json::json_pointer kName("/function/name");
  if (!choice->is_object() || !choice->contains(kName) || !choice->at(kName).is_string()) {
    refuse_field("tool_choice",
                 "tool_choice must be \"none\", \"auto\", \"required\" or {\"type\": "
                 "\"function\", \"function\": {\"name\": ...}}");
  }
  to.tool_choice = ToolChoice::named;
  to.tool_name = choice->at(kName).get<std::string>();
  if (!names_tool(to.tools, to.tool_name)) {
    refuse_field("tool_choice", fmt::format("tool_choice: no tool is called {}", to.tool_name));
  }
}

}  // namespace

void read_messages(const RequestFields& fields, OpenAiRequest& to) {
  if (fields.find("messages") == nullptr) refuse_field("messages", "messages is missing");
  const Json messages = fields.ordered("messages");
  if (!messages.is_array() || messages.empty()) {
    refuse_field("messages", "messages must be a list of at least one message");
  }
  to.messages = Json::array();
  for (const Json& message : messages) to.messages.push_back(read_message(message));
  to.add_generation_prompt = fields.boolean("add_generation_prompt", true);
  if (fields.find("chat_template_kwargs") == nullptr) return;
  to.template_arguments = fields.ordered("chat_template_kwargs");
  if (!to.template_arguments.is_object()) {
    refuse_field("chat_template_kwargs", "chat_template_kwargs must be an object");
  }
}

void read_tools(const RequestFields& fields, OpenAiRequest& to) {
  if (fields.find("tools") != nullptr) {
    to.tools = fields.ordered("tools");
    if (!to.tools.is_array() || to.tools.size() > size_t{kMaxTools}) {
      refuse_field("tools", fmt::format("tools must be a list of at most {}", kMaxTools));
    }
    for (const Json& tool : to.tools) {
      const auto function = tool.is_object() ? tool.find("function") : tool.end();
      const bool has_name = tool.is_object() && function != tool.end() && function->is_object() &&
                            string_in(*function, "name", "tools") != nullptr &&
                            tool.value("type", Json("function")) == "function";
      if (!has_name) {
        refuse_field("tools",
                     "tools: each must be {\"type\": \"function\", \"function\": "
                     "{\"name\": ..., \"parameters\": ...}}");
      }
      const auto parameters = function->find("parameters");
      if (parameters != function->end() && !parameters->is_object() && !parameters->is_null()) {
        refuse_field("tools", "tools: parameters must be a JSON schema");
      }
    }
  }
  read_tool_choice(fields, to);
  if (to.tool_choice == ToolChoice::none) to.tools = Json::array();
}

void read_response_format(const RequestFields& fields, OpenAiRequest& to) {
  const char* const kName = "response_format";
  if (fields.find(kName) == nullptr) return;
  const Json format = fields.ordered(kName);
  const Json* type = format.is_object() ? string_in(format, "type", kName) : nullptr;
  if (type != nullptr && *type == "text") return;
  if (type != nullptr && *type == "json_object") {
    to.schema = Json{{"type", "object"}};
  } else if (type != nullptr && *type == "json_schema") {
    const auto named = format.find("json_schema");
    const bool has_schema = named != format.end() && named->is_object() &&
                            named->contains("schema") && (*named)["schema"].is_object();
    if (!has_schema) {
      refuse_field(kName,
                   "response_format: json_schema must be {\"name\": ..., \"schema\": {...}}");
    }
    to.schema = (*named)["schema"];
  } else {
    refuse_field(kName, "response_format: type must be text, json_object or json_schema");
  }
  if (to.tool_choice == ToolChoice::required || to.tool_choice == ToolChoice::named) {
    refuse_field(kName, "response_format and a forced tool_choice exclude each other");
  }
}

}  // namespace ridge
