// The fields of chats and schemas: messages and how they become a prompt, tools, tool_choice,
// response_format, json_schema.
#include <algorithm>
#include <array>

#include "base/error.h"
#include "openai/openai_fields.h"
#include "openai/openai_request.h"
#include "text/grammar/json_schema.h"

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
Json text_of_content(Json& content) {
  if (content.is_string()) return std::move(content);
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
    text += words->get_ref<const std::string&>();
  }
  return text;
}

// Templates want the arguments as an object; clients send them as text.
Json tool_calls_of(Json& calls, RequestFields& fields) {
  const auto fail = [] {
    refuse_field("messages",
                 "messages: tool_calls must be a list of {id, type, function: {name, "
                 "arguments}}, with the arguments as JSON text");
  };
  if (!calls.is_array()) fail();
  for (Json& call : calls) {
    const auto function = call.is_object() ? call.find("function") : call.end();
    if (!call.is_object() || function == call.end() || !function->is_object()) fail();
    const Json* name = string_in(*function, "name", "messages");
    if (name == nullptr) fail();
    Json arguments = Json::object();
    if (const auto own = function->find("arguments"); own != function->end()) {
      arguments = std::move(*own);
    }
    if (arguments.is_string()) {
      arguments = fields.parse_object(arguments.get_ref<const std::string&>(), "messages");
    }
    if (!arguments.is_object()) fail();
    Json to = {{"type", "function"}, {"function", {{"name", *name}, {"arguments", nullptr}}}};
    to["function"]["arguments"] = std::move(arguments);
    if (const Json* id = string_in(call, "id", "messages")) to["id"] = *id;
    call = std::move(to);
  }
  return std::move(calls);
}

Json read_message(Json&& message, RequestFields& fields) {
  if (!message.is_object()) refuse_field("messages", "messages must be a list of objects");
  const Json* role = string_in(message, "role", "messages");
  constexpr std::array<const char*, 5> kRoles{"system", "developer", "user", "assistant", "tool"};
  if (role == nullptr || std::none_of(kRoles.begin(), kRoles.end(),
                                      [&](const char* known) { return *role == known; })) {
    refuse_field("messages", "messages: a role must be system, developer, user, assistant or tool");
  }
  Json to = Json::object();
  to["role"] = *role;
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
  if (has_calls) to["tool_calls"] = tool_calls_of(*calls, fields);
  for (const char* key : {"name", "tool_call_id", "reasoning_content"}) {
    if (const Json* value = string_in(message, key, "messages")) to[key] = *value;
  }
  return to;
}

// How the messages end, and what else the template reads.
void read_template_fields(RequestFields& fields, OpenAiRequest& to) {
  to.continue_final_message = fields.boolean("continue_final_message", false);
  to.add_generation_prompt = fields.boolean("add_generation_prompt", !to.continue_final_message);
  if (to.continue_final_message && to.add_generation_prompt) {
    refuse_field("continue_final_message",
                 "continue_final_message and add_generation_prompt exclude each other");
  }
  const Json& last = to.messages.back()["content"];
  if (to.continue_final_message && (!last.is_string() || last == "")) {
    refuse_field("continue_final_message", "continue_final_message: the last message has no text");
  }
  if (fields.find("chat_template_kwargs") != nullptr) {
    to.template_arguments = fields.take("chat_template_kwargs");
    if (!to.template_arguments.is_object()) {
      refuse_field("chat_template_kwargs", "chat_template_kwargs must be an object");
    }
  }
  // As vLLM does: templates of models that have it read it.
  if (const auto effort = fields.string("reasoning_effort")) {
    to.template_arguments.emplace("reasoning_effort", *effort);
  }
}

bool names_tool(const Json& tools, const std::string& name) {
  return std::any_of(tools.begin(), tools.end(),
                     [&](const Json& tool) { return tool["function"]["name"] == name; });
}

// Forced calls follow the schemas of the tools that may be called, which are copied for it.
void check_forced_tools(const OpenAiRequest& to) {
  size_t bytes = 0;
  for (const Json& tool : to.tools) {
    const Json& function = tool["function"];
    const bool named = to.tool_choice == ToolChoice::named;
    if (named && function["name"] != to.tool_name) continue;
    const auto parameters = function.find("parameters");
    if (parameters != function.end()) bytes += parameters->dump().size();
  }
  if (bytes > grammar::kMaxSchemaBytes) {
    refuse_field(
        "tools",
        fmt::format("tools: the schemas of calls that tool_choice forces have at most {} KiB",
                    grammar::kMaxSchemaBytes >> 10));
  }
}

void read_tool_choice(const RequestFields& fields, OpenAiRequest& to) {
  const Json* choice = fields.find("tool_choice");
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
    return check_forced_tools(to);
  }
  const Json::json_pointer kName("/function/name");
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
  check_forced_tools(to);
}

}  // namespace

void read_messages(RequestFields& fields, OpenAiRequest& to) {
  if (fields.find("messages") == nullptr) refuse_field("messages", "messages is missing");
  to.messages = fields.take("messages");
  if (!to.messages.is_array() || to.messages.empty()) {
    refuse_field("messages", "messages must be a list of at least one message");
  }
  for (Json& message : to.messages) message = read_message(std::move(message), fields);
  read_template_fields(fields, to);
}

void read_tools(RequestFields& fields, OpenAiRequest& to) {
  if (fields.find("tools") != nullptr) {
    to.tools = fields.take("tools");
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
  to.parallel_tool_calls = fields.boolean("parallel_tool_calls", true);
  if (to.tool_choice == ToolChoice::none) to.tools = Json::array();
}

void read_response_format(RequestFields& fields, OpenAiRequest& to) {
  const char* const kName = "response_format";
  const auto set_schema = [&](Json schema, const char* field) {
    if (to.schema) refuse_field(field, fmt::format("{} and {} exclude each other", kName, field));
    to.schema = std::move(schema);
    to.schema_field = field;
  };
  if (fields.find(kName) != nullptr) {
    Json format = fields.take(kName);
    const Json* type = format.is_object() ? string_in(format, "type", kName) : nullptr;
    if (type != nullptr && *type == "json_object") {
      const auto schema = format.find("schema");  // llama.cpp's
      const bool has_schema = schema != format.end() && !schema->is_null();
      if (has_schema && !schema->is_object()) {
        refuse_field(kName, "response_format: schema must be a JSON schema");
      }
      const bool any = !has_schema || schema->empty();
      set_schema(any ? Json{{"type", "object"}} : std::move(*schema), kName);
    } else if (type != nullptr && *type == "json_schema") {
      const auto named = format.find("json_schema");
      const bool has_schema = named != format.end() && named->is_object() &&
                              named->contains("schema") && (*named)["schema"].is_object();
      if (!has_schema) {
        refuse_field(kName,
                     "response_format: json_schema must be {\"name\": ..., \"schema\": {...}}");
      }
      set_schema(std::move((*named)["schema"]), kName);
    } else if (type == nullptr || *type != "text") {
      refuse_field(kName, "response_format: type must be text, json_object or json_schema");
    }
  }
  // llama.cpp's is a schema, SGLang's is one as text.
  if (fields.find("json_schema") != nullptr) {
    Json schema = fields.take("json_schema");
    if (schema.is_string()) {
      schema = fields.parse_object(schema.get_ref<const std::string&>(), "json_schema");
    }
    if (!schema.is_object()) refuse_field("json_schema", "json_schema must be a JSON schema");
    set_schema(std::move(schema), "json_schema");
  }
  if (to.schema &&
      (to.tool_choice == ToolChoice::required || to.tool_choice == ToolChoice::named)) {
    refuse_field(to.schema_field,
                 fmt::format("{} and a forced tool_choice exclude each other", to.schema_field));
  }
}

}  // namespace ridge
