// An asynchronous HTTP/1.1 server: one I/O thread for all sockets (Boost.Asio; Beast parses), and
// lanes of threads for the handlers, so that no kind of request waits for another. Every request
// has a size and a deadline; a slow or silent client holds no thread, and gives its place to
// whoever comes when there is no other.
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
  std::string cookie;
};

// What a request's body may be.
struct HttpBodyRule {
  size_t bytes = 0;    // above: 413
  bool alone = false;  // there is one such body at a time (others: 503), beside the budget of all
};
// 64 KiB for the options of the predictor (/api/), 8 MiB for prompts.
HttpBodyRule default_body_rule(const HttpRequest& request);

// Threads that run handlers of one kind.
struct HttpLane {
  size_t threads = 8;
  size_t waiting = 4096;  // requests; above: 503
  int niceness = 0;       // from 0 to 19, which gets least of a busy processor
};
inline constexpr int kIoLane = -1;  // on the I/O thread: for handlers that never wait

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
  // These are asked when the header has come, before the body. None may wait.
  std::function<HttpBodyRule(const HttpRequest&)> body = default_body_rule;
  // The reply to a request that is not wanted.
  std::function<std::optional<HttpReply>(const HttpRequest&)> refuse_head;
  // The index of the lane in `lanes`, or kIoLane; asked when the whole request has come.
  std::function<int(const HttpRequest&)> lane = [](const HttpRequest&) { return 0; };
  // Requests that are answered on a connection beyond the limits of connections.
  std::function<bool(const HttpRequest&)> reserve = [](const HttpRequest&) { return false; };

  std::vector<HttpLane> lanes = std::vector<HttpLane>(1);
  size_t header_bytes = 32 << 10;     // above: 431
  size_t path_bytes = 256;            // before the query; above: 414
  size_t all_body_bytes = 128 << 20;  // of all requests whose bodies are held; above: 503
  size_t free_body_bytes = 16 << 10;  // of each, which do not count
  // From the first byte of a request to its header's end, and from a connection to its first byte.
  std::chrono::milliseconds header{10000};
  std::chrono::milliseconds read{30000};  // to its last byte; later than these two: 408
  size_t body_rate = 1024;                // bytes a second that a body comes with; slower: 408,
  std::chrono::milliseconds body_grace{5000};  // after so long
  std::chrono::milliseconds idle{5000};        // between the requests of a connection
  std::chrono::milliseconds stall{30000};  // a client that takes no byte of its answer is dropped
  // After so long it is asked whether a client that has closed its sending side is there.
  std::chrono::milliseconds half_closed{1000};
  size_t unsent_bytes = 1 << 20;  // of a stream; a client that lags further is dropped

  // A connection above one of the first two takes the place of the one that has waited longest for
  // its client's request: of the same client, or of all. Where every other is being answered it
  // gets one of the reserved places, and 503 but for `reserve`.
  size_t connections = 4096;
  size_t connections_per_client = 2048;  // by address; of IPv6 by network of 64 bits
  size_t reserved_connections = 256;
  size_t requests_per_connection = 1000;
};

// One request and its answer. Every member may be called from any thread, and after the server has
// ended. An exchange that is destroyed without an answer replies 500; a stream that is destroyed
// without end() closes the connection, so that the client sees that it is not whole.
class HttpExchange {
 public:
  virtual ~HttpExchange() = default;
  virtual const HttpRequest& request() const = 0;
  // Frees the request's body, which counts against all_body_bytes until then or until the exchange
  // is destroyed. Once, by whoever reads the request.
  virtual void release_body() = 0;

  // The whole answer, or the head of a stream (its body is ignored). Only the first call counts.
  virtual void reply(HttpReply reply) = 0;
  virtual void begin_stream(HttpReply head) = 0;

  // Queues bytes of a stream and never waits. What is queued together is sent together. False once
  // the client is gone or too far behind, and after end().
  virtual bool write(std::string_view bytes) = 0;
  virtual void end() = 0;

  // `callback` is called once if the client goes away, or is dropped for reading too slowly, before
  // reply() or end(): on the I/O thread, so it must not wait; at once, on this thread, if it has
  // gone already. A client that closes only its sending side is not gone and gets its answer. TCP
  // does not tell it from one that has closed the socket, so the server then sends what a client
  // may skip (100 Continue, or a comment of an event stream): a closed socket answers with a reset.
  // HTTP/1.0 has neither, and there the client counts as gone: it still gets a reply(), but no
  // stream. The callback is released when the answer ends.
  virtual void on_closed(std::function<void()> callback) = 0;
  virtual bool closed() const = 0;
};

// Must not throw. It may keep the exchange and return; the answer can come from another thread.
using HttpHandler = std::function<void(std::shared_ptr<HttpExchange>)>;

class HttpServer {
 public:
  // The handler runs in the lanes, several at once.
  HttpServer(HttpHandler handler, const HttpLimits& limits);
  ~HttpServer();  // after run() has returned
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  // `host` is an IPv4 or IPv6 address or a name, which stands for all its addresses. Port 0 takes
  // any free one. Returns the port; throws Error when it is taken. Where the process may open too
  // few files for the limits of connections, they shrink.
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
