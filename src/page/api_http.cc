#include "page/api_http.h"

#include <fmt/format.h>

namespace ridge {
namespace {

std::string text_of(const nlohmann::json& value, const std::string& name) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_boolean()) return value.get<bool>() ? "true" : "false";
  if (value.is_number()) return value.dump();
  if (value.is_array()) {
    std::string list;
    for (const nlohmann::json& part : value) {
      if (part.is_structured()) break;
      list += (list.empty() ? "" : ",") + text_of(part, name);
    }
    return list;
  }
  throw OptionError(name, fmt::format("{} must be text, a number, true or false, or a list", name));
}

}  // namespace

ApiOptions api_options_in(const HttpRequest& request) {
  if (!request.repeated.empty()) {
    throw OptionError(request.repeated, fmt::format("{} was given twice", request.repeated));
  }
  ApiOptions options = request.query;
  if (request.method != "POST" || request.body.empty()) return options;
  const nlohmann::json body = parse_json(request.body, "the body");
  if (!body.is_object()) throw Error("the body must be a JSON object of options");
  for (const auto& [name, value] : body.items()) {
    if (!value.is_null()) options[name] = text_of(value, name);
  }
  return options;
}

HttpReply api_json_reply(const Json& json, int status) {
  HttpReply reply;
  reply.status = status;
  // Names from a user's atlas may hold bytes that are not UTF-8.
  reply.body = json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
  return reply;
}

HttpReply api_error_reply(int status, const std::string& message, const std::string& option) {
  Json error{{"message", message}};
  if (!option.empty()) error["option"] = option;
  return api_json_reply({{"error", error}}, status);
}

}  // namespace ridge
