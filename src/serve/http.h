// An HTTP server with limits: cpp-httplib for the protocol, and a deadline and a size for every
// request, so that no client can hold a thread for long.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>

namespace ridge {

struct HttpLimits {
  size_t body_bytes = 64 << 10;
  size_t request_bytes = 96 << 10;           // headers and body together
  size_t path_bytes = 256;                   // before the query
  std::chrono::milliseconds request{10000};  // from the first byte to the last of the answer
  std::chrono::milliseconds idle{5000};      // between the requests of a connection
  size_t requests_per_connection = 1000;
  size_t threads = 32;
};

struct HttpRequest {
  std::string method, path, host, content_type, body;
  bool takes_gzip = false;
  // Query values; a name given twice is kept as given last and counted here.
  std::map<std::string, std::string> query;
  std::string repeated;  // a query name that came twice; empty: none
};

struct HttpReply {
  int status = 200;
  std::string type = "application/json";
  std::string body;
  bool gzipped = false;
  bool cacheable = false;
};

using HttpHandler = std::function<HttpReply(const HttpRequest&)>;

class HttpServer {
 public:
  // The handler runs on many threads at once and must not throw.
  HttpServer(HttpHandler handler, const HttpLimits& limits);
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  // Port 0 takes any free one. Returns the port; throws Error when it is taken.
  int bind(const std::string& host, int port);
  void run();   // serves until stop()
  void stop();  // from any thread

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace ridge
