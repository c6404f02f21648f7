// A server with a handler of the test's own, and what its tests share.
#pragma once

#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <string>
#include <string_view>
#include <thread>

#include "http/http.h"
#include "patient_limits.h"
#include "sockets.h"

namespace ridge {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;
using Exchange = std::shared_ptr<HttpExchange>;

inline double milliseconds_since(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

inline HttpLimits with_quick_health(HttpLimits limits) {
  limits.lane = [](const HttpRequest& request) { return request.path == "/health" ? kIoLane : 0; };
  return limits;
}

class Serving {
 public:
  explicit Serving(HttpHandler handler, const HttpLimits& limits = patient_limits())
      : server_(std::move(handler), with_quick_health(limits)),
        port_(server_.bind("127.0.0.1", 0)),
        thread_([this] { server_.run(); }) {}
  ~Serving() {
    server_.stop();
    join();
  }
  int port() const { return port_; }
  HttpServer& operator*() { return server_; }
  void join() {
    if (thread_.joinable()) thread_.join();
  }

 private:
  HttpServer server_;
  int port_;
  std::thread thread_;
};

inline void say(const Exchange& exchange, std::string text) {
  HttpReply reply;
  reply.type = "text/plain";
  reply.body = std::move(text);
  exchange->reply(std::move(reply));
}

inline void echo(const Exchange& exchange) {
  const HttpRequest& request = exchange->request();
  say(exchange, request.method + " " + request.path + " " + request.body);
}

inline HttpReply event_stream() {
  HttpReply head;
  head.type = "text/event-stream";
  return head;
}

inline std::string get(const std::string& target, const std::string& more = "") {
  return "GET " + target + " HTTP/1.1\r\nHost: localhost\r\n" + more + "\r\n";
}

// What a test waits for from another thread.
class Event {
 public:
  void set() {
    if (!done_.exchange(true)) promise_.set_value();
  }
  bool wait() const { return future_.wait_for(kPatience) == std::future_status::ready; }
  bool is_set() const { return done_; }

 private:
  std::atomic<bool> done_ = false;
  std::promise<void> promise_;
  std::shared_future<void> future_ = promise_.get_future().share();
};

}  // namespace ridge
