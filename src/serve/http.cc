#include "serve/http.h"

#include "base/error.h"

namespace ridge {

size_t default_body_bytes(std::string_view path) {
  return path.starts_with("/api/") ? 64 << 10 : 8 << 20;
}

struct HttpServer::Impl {};
HttpServer::HttpServer(HttpHandler, const HttpLimits&, std::function<bool(const HttpRequest&)>) {}
HttpServer::~HttpServer() = default;
int HttpServer::bind(const std::string&, int) { throw Error("the server is being replaced"); }
void HttpServer::run() {}
void HttpServer::stop() {}
void HttpServer::drain(std::chrono::milliseconds) {}

}  // namespace ridge
