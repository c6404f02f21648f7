#include "serve/http.h"

#include <httplib.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <utility>

#include "base/error.h"

namespace ridge {
namespace {

using Clock = std::chrono::steady_clock;

// The kernel queues this many connections before they are accepted. httplib sets 5, too few for a
// burst of a thousand clients.
constexpr int kBacklog = 1024;

// How often an idle connection checks whether the server stops.
constexpr std::chrono::milliseconds kGlance{100};

// A connection whose reads and writes end at a deadline and whose requests have a size.
class BoundedStream : public httplib::Stream {
 public:
  BoundedStream(socket_t socket, const HttpLimits& limits) : socket_(socket), limits_(limits) {}

  // Waits for the next request; false when none came in time or the server stops meanwhile. The
  // deadline of a request counts from its first byte.
  template <typename Running>
  bool next_request(Running running) {
    const Clock::time_point last = Clock::now() + limits_.idle;
    left_ = limits_.request_bytes;
    while (begin_ == end_) {
      const Clock::time_point now = Clock::now();
      if (now >= last || !running()) return false;
      deadline_ = std::min(last, now + kGlance);
      if (wait(POLLIN)) break;
    }
    deadline_ = Clock::now() + limits_.request;
    return true;
  }

  bool is_readable() const override { return begin_ < end_ || wait(POLLIN); }
  bool is_writable() const override { return wait(POLLOUT); }

  ssize_t read(char* into, size_t size) override {
    if (begin_ == end_) {
      if (!wait(POLLIN)) return -1;
      const ssize_t got = ::recv(socket_, buffer_.data(), buffer_.size(), 0);
      if (got <= 0) return got;
      begin_ = 0;
      end_ = static_cast<size_t>(got);
    }
    const size_t count = std::min({size, end_ - begin_, left_});
    if (count == 0) return -1;  // more than a request may have
    std::copy_n(buffer_.data() + begin_, count, into);
    begin_ += count;
    left_ -= count;
    return static_cast<ssize_t>(count);
  }

  ssize_t write(const char* from, size_t size) override {
    if (!wait(POLLOUT)) return -1;
    return ::send(socket_, from, size, MSG_NOSIGNAL);
  }

  void get_remote_ip_and_port(std::string&, int&) const override {}
  void get_local_ip_and_port(std::string&, int&) const override {}
  socket_t socket() const override { return socket_; }

 private:
  bool wait(short events) const {
    for (;;) {
      const auto left =
          std::chrono::duration_cast<std::chrono::milliseconds>(deadline_ - Clock::now());
      if (left.count() <= 0) return false;
      pollfd entry{socket_, events, 0};
      const int ready = ::poll(&entry, 1, static_cast<int>(left.count()));
      if (ready < 0 && errno == EINTR) continue;
      return ready > 0;
    }
  }

  socket_t socket_;
  const HttpLimits& limits_;
  Clock::time_point deadline_;
  size_t left_ = 0;
  std::array<char, 4096> buffer_;
  size_t begin_ = 0, end_ = 0;
};

constexpr const char* kPolicy =
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

HttpRequest request_of(const httplib::Request& from) {
  HttpRequest to;
  to.method = from.method;
  to.path = from.path;
  to.host = from.get_header_value("Host");
  to.content_type = from.get_header_value("Content-Type");
  to.takes_gzip = from.get_header_value("Accept-Encoding").find("gzip") != std::string::npos;
  to.body = from.body;
  for (const auto& [name, value] : from.params) {
    if (!to.query.insert_or_assign(name, value).second) to.repeated = name;
  }
  return to;
}

void fill(httplib::Response& to, HttpReply from) {
  to.status = from.status;
  to.set_header("Content-Security-Policy", kPolicy);
  to.set_header("X-Content-Type-Options", "nosniff");
  to.set_header("Referrer-Policy", "no-referrer");
  to.set_header("Cross-Origin-Resource-Policy", "same-origin");
  to.set_header("Cache-Control", from.cacheable ? "no-cache" : "no-store");
  if (from.gzipped) to.set_header("Content-Encoding", "gzip");
  // As a provider, because httplib compresses plain bodies itself: pages a second time, and long
  // answers with brotli's slowest setting.
  auto body = std::make_shared<const std::string>(std::move(from.body));
  to.set_content_provider(body->size(), from.type,
                          [body](size_t offset, size_t length, httplib::DataSink& sink) {
                            return sink.write(body->data() + offset, length);
                          });
}

}  // namespace

struct HttpServer::Impl : httplib::Server {
  Impl(HttpHandler handle, const HttpLimits& with) : handler(std::move(handle)), limits(with) {
    set_payload_max_length(limits.body_bytes);
    set_tcp_nodelay(true);
    set_keep_alive_max_count(limits.requests_per_connection);
    new_task_queue = [count = limits.threads] { return new httplib::ThreadPool(count); };
    const auto answer = [this](const httplib::Request& request, httplib::Response& response) {
      fill(response, handler(request_of(request)));
    };
    // Routes are not httplib's: it would match every path against regular expressions.
    set_pre_routing_handler(
        [this, answer](const httplib::Request& request, httplib::Response& response) {
          if (request.path.size() > limits.path_bytes) {
            fill(response, error_reply(414, "the path is too long"));
            return HandlerResponse::Handled;
          }
          if (request.method == "POST")
            return HandlerResponse::Unhandled;  // its body is not read yet
          answer(request, response);
          return HandlerResponse::Handled;
        });
    Post(".*", answer);
    set_error_handler([](const httplib::Request&, httplib::Response& response) {
      if (response.content_length_ > 0) return;  // the handler has answered
      const bool large = response.status == 413;
      fill(response,
           error_reply(response.status < 400 ? 400 : response.status,
                       large ? "the body is too large" : "this request is not understood"));
    });
  }

  static HttpReply error_reply(int status, const char* message) {
    HttpReply reply;
    reply.status = status;
    reply.body = std::string(R"({"error":{"message":")") + message + "\"}}\n";
    return reply;
  }

  bool process_and_close_socket(socket_t socket) override {
    BoundedStream stream(socket, limits);
    bool well = true, closed = false;
    for (size_t left = limits.requests_per_connection; left > 0 && well && !closed; --left) {
      if (!stream.next_request([this] { return svr_sock_ != INVALID_SOCKET; })) break;
      well = process_request(stream, left == 1, closed, nullptr);
    }
    ::shutdown(socket, SHUT_RDWR);
    ::close(socket);
    return well;
  }

  void widen_backlog() { ::listen(svr_sock_, kBacklog); }

  // Unlike httplib's stop(), this also works before run(), which then returns at once.
  void close_listener() {
    const socket_t socket = svr_sock_.exchange(INVALID_SOCKET);
    if (socket == INVALID_SOCKET) return;
    ::shutdown(socket, SHUT_RDWR);
    ::close(socket);
  }

  HttpHandler handler;
  HttpLimits limits;
};

HttpServer::HttpServer(HttpHandler handler, const HttpLimits& limits)
    : impl_(std::make_unique<Impl>(std::move(handler), limits)) {}
HttpServer::~HttpServer() { stop(); }

int HttpServer::bind(const std::string& host, int port) {
  // Without SO_REUSEPORT, which httplib sets and which would let two servers share the port.
  impl_->set_socket_options([](socket_t socket) {
    const int yes = 1;
    ::setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  });
  const int bound = port == 0                         ? impl_->bind_to_any_port(host)
                    : impl_->bind_to_port(host, port) ? port
                                                      : -1;
  if (bound < 0) {
    throw Error("cannot listen on {}:{}: taken, or not an address of this machine (try --port {})",
                host, port, port == 8080 ? 8081 : 8080);
  }
  impl_->widen_backlog();
  return bound;
}

void HttpServer::run() { impl_->listen_after_bind(); }
void HttpServer::stop() { impl_->close_listener(); }

}  // namespace ridge
