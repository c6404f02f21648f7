// One socket of the server. Includes Asio, which takes seconds to compile: only for the server's
// own files.
#pragma once

#include <array>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <chrono>
#include <deque>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_set>

#include "http/http.h"
#include "http/http_answer.h"
#include "http/http_bodies.h"
#include "http/http_lane.h"
#include "http/http_reader.h"
#include "http/http_text.h"

namespace ridge {

class HttpConnection;

// Connections that share a limit. Those that wait for a request, or for the rest of one, stand in
// the order in which they began to: the first gives its place to another.
struct HttpConnectionGroup {
  size_t open = 0;
  std::list<HttpConnection*> reading;
};

// What the connections share. All but flush_soon() is for the I/O thread.
class HttpServerState {
 public:
  // Lets the I/O thread flush() the connection. From any thread, while the connection is open.
  void flush_soon(std::shared_ptr<HttpConnection> connection);
  // Lets it read() more of the connection, after those of others.
  void read_soon(std::shared_ptr<HttpConnection> connection);

  boost::asio::io_context io{1};
  HttpHandler handler;
  HttpLimits limits;
  std::deque<HttpLaneThreads> lanes;  // while run() runs
  std::shared_ptr<BodyBudget> bodies;
  std::unordered_set<std::shared_ptr<HttpConnection>> connections;
  // By client's address, of all of them, and of those in reserved places.
  std::map<boost::asio::ip::address, HttpConnectionGroup> clients;
  HttpConnectionGroup all, reserved;
  bool draining = false;
  std::array<char, 64 << 10> buffer;  // what one read of one socket takes

 private:
  void flush_some();
  void read_some();

  std::mutex mutex_;
  std::deque<std::shared_ptr<HttpConnection>> ready_;    // to be flushed
  std::deque<std::shared_ptr<HttpConnection>> arrived_;  // to be read
  bool reads_posted_ = false;
};

// A socket and its requests, one after the other. All on the I/O thread.
class HttpConnection : public std::enable_shared_from_this<HttpConnection> {
 public:
  // `client`: nothing for a reserved place.
  HttpConnection(HttpServerState& server, boost::asio::ip::tcp::socket socket,
                 std::optional<boost::asio::ip::address> client)
      : server_(server),
        socket_(std::move(socket)),
        client_(std::move(client)),
        reader_(server.limits, server.bodies) {}

  void start();
  void check_deadline(std::chrono::steady_clock::time_point now);
  void flush();          // sends what the handler has given
  void read_more();      // of what has arrived
  void close_if_idle();  // that is, between two requests
  bool give_place();     // closes it, unless a whole request has come meanwhile
  void close(bool reset = false);

 private:
  // reading: waits for a request or for the rest of one. answering: a handler has it. ending: the
  // last answer is being sent. lingering: it is sent.
  enum class State { reading, answering, ending, lingering, closed };

  bool is_idle() const { return state_ == State::reading && !reader_.begun(); }
  bool is_reserved() const { return !client_; }
  std::array<HttpConnectionGroup*, 2> groups();  // that it counts in; null: none
  void begin_reading();
  void end_reading(State next);
  void expect_request();
  bool reads_body() const;
  void wait_readable();
  void wait_reset();
  void read();
  size_t discard(boost::system::error_code& failure);
  void end_input();
  void doubt_client();
  void provoke_reset();
  void read_requests();
  bool is_late(std::chrono::steady_clock::time_point now) const;
  void dispatch();
  void refuse(const HttpReply& reply);
  void collect();
  void append_head(const HttpReply& reply, bool streamed);
  void append_body(std::string_view bytes);
  bool send();
  void finish_answer();
  void linger();

  HttpServerState& server_;
  boost::asio::ip::tcp::socket socket_;
  const std::optional<boost::asio::ip::address> client_;
  State state_ = State::ending;
  std::array<std::list<HttpConnection*>::iterator, 2> places_;  // in the groups, while it reads
  // Of what the state waits for; while a request is read: when its first byte and its header came.
  std::chrono::steady_clock::time_point deadline_ = std::chrono::steady_clock::time_point::max();
  std::chrono::steady_clock::time_point begun_at_, header_at_;
  // When the client of the answer under way closed its sending side.
  std::chrono::steady_clock::time_point doubted_at_ = std::chrono::steady_clock::time_point::max();
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
  bool head_sent_ = false, event_stream_ = false;  // of the answer
  HttpFraming framing_ = HttpFraming::content_length;
  bool collected_ = false;  // the end of the answer is in out_
};

}  // namespace ridge
