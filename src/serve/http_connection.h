// One socket of the server. Includes Asio, which takes seconds to compile: only for the server's
// own files.
#pragma once

#include <array>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/thread_pool.hpp>
#include <chrono>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_set>

#include "serve/http.h"
#include "serve/http_answer.h"
#include "serve/http_reader.h"
#include "serve/http_text.h"

namespace ridge {

class HttpConnection;

// What the connections share. All but flush_soon() is for the I/O thread.
class HttpServerState {
 public:
  // Lets the I/O thread flush() the connection. From any thread, while the connection is open.
  void flush_soon(std::shared_ptr<HttpConnection> connection);

  boost::asio::io_context io{1};
  HttpHandler handler;
  std::function<bool(const HttpRequest&)> is_quick;
  HttpLimits limits;
  std::optional<boost::asio::thread_pool> workers;  // while run() runs
  std::unordered_set<std::shared_ptr<HttpConnection>> connections;
  bool draining = false;
  std::array<char, 64 << 10> buffer;  // what one read of one socket takes

 private:
  void flush_some();

  std::mutex mutex_;
  std::deque<std::shared_ptr<HttpConnection>> ready_;  // to be flushed
};

// A socket and its requests, one after the other. All on the I/O thread.
class HttpConnection : public std::enable_shared_from_this<HttpConnection> {
 public:
  HttpConnection(HttpServerState& server, boost::asio::ip::tcp::socket socket)
      : server_(server), socket_(std::move(socket)), reader_(server.limits) {}

  void start(bool refused);
  void check_deadline(std::chrono::steady_clock::time_point now);
  void flush();          // sends what the handler has given
  void close_if_idle();  // that is, between two requests
  void close(bool reset = false);

 private:
  // reading: waits for a request or for the rest of one. answering: a handler has it. ending: the
  // last answer is being sent. lingering: it is sent.
  enum class State { reading, answering, ending, lingering, closed };

  bool is_idle() const { return state_ == State::reading && !reader_.begun(); }
  void expect_request();
  void wait_readable();
  void read();
  void end_input();
  void read_requests();
  void dispatch();
  void refuse(const HttpReply& reply);
  void collect();
  void append_head(const HttpReply& reply, bool streamed);
  bool send();
  void finish_answer();
  void linger();

  HttpServerState& server_;
  boost::asio::ip::tcp::socket socket_;
  State state_ = State::reading;
  std::chrono::steady_clock::time_point deadline_ = std::chrono::steady_clock::time_point::max();
  size_t requests_ = 0;

  std::string in_;            // read, not parsed yet
  bool waiting_ = false;      // for the socket to become readable
  bool input_ended_ = false;  // the client has closed its sending side
  HttpReader reader_;
  size_t lingered_bytes_ = 0;

  std::string out_;  // to be sent after sending_
  std::string sending_;
  size_t sent_ = 0;       // of sending_
  bool blocked_ = false;  // the kernel takes no more
  std::shared_ptr<HttpAnswer> answer_;
  bool http11_ = true, head_only_ = false, keep_alive_ = false;
  HttpFraming framing_ = HttpFraming::content_length;
  bool collected_ = false;  // the end of the answer is in out_
};

}  // namespace ridge
