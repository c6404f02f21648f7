// An asynchronous HTTP/1.1 server: one I/O thread for all sockets (Boost.Asio; Beast parses), and a
// few workers for the handlers. Every request has a size and a deadline; a slow or silent client
// holds no thread.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace ridge {

// 64 KiB for the options of the predictor (/api/), 8 MiB for prompts.
size_t default_body_bytes(std::string_view path);

struct HttpRequest {
  std::string method, path, host, content_type, body;
  bool takes_gzip = false;
  // Query values; a name given twice is kept as given last and named in `repeated`.
  std::map<std::string, std::string> query;
  std::string repeated;       // a query name that came twice; empty: none
  std::string authorization;  // these: the header's value, empty without one
  std::string api_key;        // X-Api-Key
  std::string origin;
  std::string requested_headers;  // Access-Control-Request-Headers, of a preflight
  std::string request_id;         // X-Request-Id
  std::string fetch_site;         // Sec-Fetch-Site
};

struct HttpReply {
  int status = 200;
  std::string type = "application/json";
  std::string body;
  bool gzipped = false;
  bool cacheable = false;
  // Further headers, such as Retry-After. They replace the server's own of the same name.
  std::vector<std::pair<std::string, std::string>> headers;
};

struct HttpLimits {
  std::function<size_t(std::string_view path)> body_bytes = default_body_bytes;  // above: 413
  // Asked before a body is read: the reply to a request that is not wanted. Must not wait.
  std::function<std::optional<HttpReply>(const HttpRequest&)> refuse_head;
  size_t header_bytes = 32 << 10;          // above: 431
  size_t path_bytes = 256;                 // before the query; above: 414
  std::chrono::milliseconds read{30000};   // from the first byte of a request to its last; then 408
  std::chrono::milliseconds idle{5000};    // between the requests of a connection
  std::chrono::milliseconds stall{30000};  // a client that takes no byte of its answer is dropped
  size_t unsent_bytes = 1 << 20;           // of a stream; a client that lags further is dropped
  size_t connections = 2048;               // above: 503
  size_t requests_per_connection = 1000;
  size_t threads = 8;  // that run handlers
};

// One request and its answer. Every member may be called from any thread, and after the server has
// ended. An exchange that is destroyed without an answer replies 500; a stream that is destroyed
// without end() closes the connection, so that the client sees that it is not whole.
class HttpExchange {
 public:
  virtual ~HttpExchange() = default;
  virtual const HttpRequest& request() const = 0;

  // The whole answer, or the head of a stream (its body is ignored). Only the first call counts.
  virtual void reply(HttpReply reply) = 0;
  virtual void begin_stream(HttpReply head) = 0;

  // Queues bytes of a stream and never waits. What is queued together is sent together. False once
  // the client is gone or too far behind, and after end().
  virtual bool write(std::string_view bytes) = 0;
  virtual void end() = 0;

  // `callback` is called once if the client goes away, or is dropped for reading too slowly, before
  // reply() or end(): on the I/O thread, so it must not wait; at once, on this thread, if it has
  // gone already. A client that closes only its sending side counts as gone: TCP does not tell the
  // two apart. It still gets a reply(), but no stream. The callback is released when the answer
  // ends.
  virtual void on_closed(std::function<void()> callback) = 0;
  virtual bool closed() const = 0;
};

// Must not throw. It may keep the exchange and return; the answer can come from another thread.
using HttpHandler = std::function<void(std::shared_ptr<HttpExchange>)>;

class HttpServer {
 public:
  // The handler runs on the workers, several at once. Requests for which `is_quick` is true are
  // handled on the I/O thread, so that no long handler delays them; they must not wait.
  HttpServer(HttpHandler handler, const HttpLimits& limits,
             std::function<bool(const HttpRequest&)> is_quick = {});
  ~HttpServer();  // after run() has returned
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  // `host` is an IPv4 or IPv6 address or a name, which stands for all its addresses. Port 0 takes
  // any free one. Returns the port; throws Error when it is taken.
  int bind(const std::string& host, int port);
  void run();  // serves until stop() or the end of drain(); returns when no handler runs any more

  // Both return at once, from any thread, also before run().
  void stop();  // closes every connection
  // Stops accepting, closes idle connections, and lets answers finish; stops after `limit`.
  void drain(std::chrono::milliseconds limit);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace ridge
