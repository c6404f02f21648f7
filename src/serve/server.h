// What the server says to each request: the page, the API, health.
#pragma once

#include <string>

#include "serve/http.h"

namespace ridge {

class OpenAiServer;
class LabService;

struct ServeOptions {
  std::string host = "127.0.0.1";
  int port = 8080;
};

// Never throws: whatever goes wrong is a JSON error. `bound_host` is the address listened on, which
// decides who is answered: refuse_head() of api_http.h.
HttpReply reply_to(const HttpRequest& request, const std::string& bound_host);

// The limits of a server that listens on `bound_host`: files are taken on a loopback address only,
// and a body that refuse_head() refuses is not read.
HttpLimits page_limits(const std::string& bound_host);

// The same as a handler of the server, with the OpenAI API and the lab beside it unless they are
// null. Both must outlive it.
HttpHandler page_handler(std::string bound_host, OpenAiServer* api = nullptr,
                         LabService* lab = nullptr);
// Answers that never wait: HttpServer gives them on its I/O thread.
bool is_quick(const HttpRequest& request);

}  // namespace ridge
