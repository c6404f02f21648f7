// The text of HTTP messages: request targets in, heads of answers out. Pure functions.
#pragma once

#include <string>
#include <string_view>

#include "http/http.h"

namespace ridge {

// Fills path, query and repeated from a request target: "/path?query", or "http://host/path?query",
// whose host then replaces the header's. Escapes are decoded; a broken one stays as it is. False if
// the target is neither of these forms nor "*".
bool read_target(std::string_view target, HttpRequest& request);

// Whether a Content-Type is `type` ("application/json"), in any case and with any parameters.
bool has_media_type(std::string_view content_type, std::string_view type);

// How the end of an answer's body is marked.
enum class HttpFraming { content_length, chunked, close };

// The status line and headers, with the blank line. `body_bytes` counts for content_length only.
// Headers of the reply that hold control characters are left out.
std::string answer_head(const HttpReply& reply, HttpFraming framing, size_t body_bytes,
                        std::string_view connection);

// {"error": {"message": ...}}; the message must need no escapes.
HttpReply plain_error(int status, std::string_view message);
HttpReply busy_error(std::string_view message, int retry_after_s);  // 503

}  // namespace ridge
