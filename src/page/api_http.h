// What the paths under /api share where they meet HTTP: options out of a request, and JSON replies.
#pragma once

#include <exception>
#include <string>

#include "base/error.h"
#include "base/json.h"
#include "http/http.h"
#include "openai/busy_error.h"
#include "page/api.h"

namespace ridge {

// The query and, of a POST, the JSON object in the body. Throws Error; OptionError for a name that
// was given twice.
ApiOptions api_options_in(const HttpRequest& request);

HttpReply api_json_reply(const Json& json, int status = 200);
HttpReply api_error_reply(int status, const std::string& message, const std::string& option = "");

// The JSON that `work` returns; what it throws becomes an error object.
template <typename Work>
HttpReply api_reply_with(Work work, int status = 200) {
  try {
    return api_json_reply(work(), status);
  } catch (const OptionError& error) {
    return api_error_reply(400, error.what(), error.option());
  } catch (const BusyError& error) {
    HttpReply reply = api_error_reply(503, error.what());
    reply.headers.emplace_back("Retry-After", "5");
    return reply;
  } catch (const Error& error) {
    return api_error_reply(400, error.what());
  } catch (const std::exception& error) {
    return api_error_reply(500, fmt::format("a fault of Ridge: {}", error.what()));
  }
}

}  // namespace ridge
