#include "serve/http.h"

#include <fmt/format.h>
#include <netinet/tcp.h>
#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/thread_pool.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <iterator>
#include <list>
#include <optional>
#include <set>
#include <unordered_set>

#include "base/error.h"
#include "serve/http_answer.h"
#include "serve/http_text.h"

namespace ridge {
namespace {

namespace asio = boost::asio;
namespace http = boost::beast::http;
using asio::ip::tcp;
using boost::system::error_code;
using Clock = std::chrono::steady_clock;
using namespace std::chrono_literals;

constexpr int kBacklog = 1024;
constexpr auto kTick = 50ms;  // how often deadlines are checked
constexpr auto kNever = Clock::time_point::max();

// While an answer is under way the socket is read on, to notice when the client goes. What the
// client sends meanwhile belongs to its next request. So much of it is kept; then reading pauses.
constexpr size_t kPipelinedBytes = 64 << 10;

// After its last answer the server reads on until the client closes too: closing with unread bytes
// would reset the connection, and the client might lose the answer.
constexpr auto kLingerTime = 2s;
constexpr size_t kLingerBytes = 16 << 20;

// So many connections above the limit are told 503; more are closed at once.
constexpr size_t kRefusedConnections = 256;

// The kernel takes no more unsent bytes than this for one connection. Left alone it takes megabytes
// before a slow reader shows.
constexpr int kKernelUnsentBytes = 128 << 10;

using Parser = http::request_parser<http::string_body>;

std::string field_value(const http::fields& fields, boost::beast::string_view name) {
  const auto found = fields.find(name);
  return found == fields.end() ? std::string() : std::string(found->value());
}

// All but the body. Taken before the body is read: its trailer could add fields.
bool read_header(const Parser& parser, HttpRequest& to) {
  const auto& from = parser.get();
  to.method = std::string(from.method_string());
  to.host = field_value(from, "Host");
  to.content_type = field_value(from, "Content-Type");
  to.takes_gzip = field_value(from, "Accept-Encoding").find("gzip") != std::string::npos;
  to.authorization = field_value(from, "Authorization");
  to.api_key = field_value(from, "X-Api-Key");
  to.origin = field_value(from, "Origin");
  to.request_id = field_value(from, "X-Request-Id");
  const size_t hosts = from.count(http::field::host);
  if (hosts > 1 || (hosts == 0 && from.version() == 11)) return false;
  return read_target({from.target().data(), from.target().size()}, to);
}

class Connection;

// What the connections share.
struct Shared {
  asio::io_context io{1};
  HttpHandler handler;
  std::function<bool(const HttpRequest&)> is_quick;
  HttpLimits limits;
  std::optional<asio::thread_pool> workers;  // while run() runs
  std::unordered_set<std::shared_ptr<Connection>> connections;
  bool draining = false;
  std::array<char, 64 << 10> buffer;  // what one read of one socket takes
};

// A socket and its requests, one after the other. All on the I/O thread.
class Connection : public std::enable_shared_from_this<Connection> {
 public:
  Connection(Shared& shared, tcp::socket socket) : shared_(shared), socket_(std::move(socket)) {}

  void start(bool refused);
  void check_deadline(Clock::time_point now);
  bool is_idle() const { return state_ == State::reading && !begun_; }
  void close(bool reset = false);

 private:
  // reading: waits for a request or for the rest of one. answering: a handler has it. ending: the
  // last answer is being sent. lingering: it is sent.
  enum class State { reading, answering, ending, lingering, closed };

  void expect_request();
  void wait_readable();
  void read();
  void end_input();
  void parse();
  bool accept_header();
  void dispatch();
  void refuse(int status, std::string_view message);
  void flush();
  bool collect();
  void append_head(const HttpReply& reply, bool streamed);
  void write();
  void on_written();
  void finish_answer();
  void linger();

  Shared& shared_;
  tcp::socket socket_;
  State state_ = State::reading;
  Clock::time_point deadline_ = kNever;
  size_t requests_ = 0;

  std::string in_;            // read, not parsed yet
  bool waiting_ = false;      // for the socket to become readable
  bool input_ended_ = false;  // the client has closed its sending side
  std::optional<Parser> parser_;
  bool begun_ = false;  // a byte of the request has come
  bool header_done_ = false;
  size_t header_bytes_ = 0;
  size_t lingered_bytes_ = 0;
  HttpRequest request_;

  std::string out_;
  size_t sent_ = 0;  // of out_
  bool writing_ = false;
  std::shared_ptr<HttpAnswer> answer_;
  bool http11_ = true, head_only_ = false, keep_alive_ = false;
  HttpFraming framing_ = HttpFraming::content_length;
  bool collected_ = false;  // the end of the answer is in out_
};

void Connection::start(bool refused) {
  error_code ignored;
  socket_.set_option(tcp::no_delay(true), ignored);
  socket_.non_blocking(true, ignored);
  ::setsockopt(socket_.native_handle(), IPPROTO_TCP, TCP_NOTSENT_LOWAT, &kKernelUnsentBytes,
               sizeof kKernelUnsentBytes);
  if (refused) return refuse(503, "too many connections");
  expect_request();
  wait_readable();
}

void Connection::expect_request() {
  state_ = State::reading;
  deadline_ = Clock::now() + shared_.limits.idle;
  begun_ = header_done_ = false;
  header_bytes_ = 0;
  request_ = {};
  parser_.emplace();
  parser_->header_limit(static_cast<uint32_t>(shared_.limits.header_bytes));
  parser_->body_limit(boost::none);  // until the path is known
}

void Connection::wait_readable() {
  if (waiting_ || input_ended_ || state_ == State::closed) return;
  if (in_.size() >= kPipelinedBytes && state_ != State::reading) return;
  waiting_ = true;
  socket_.async_wait(tcp::socket::wait_read,
                     [self = shared_from_this()](const error_code& failure) {
                       self->waiting_ = false;
                       if (self->state_ == State::closed) return;
                       if (failure) return self->close();
                       self->read();
                     });
}

void Connection::read() {
  error_code failure;
  const size_t got = socket_.read_some(asio::buffer(shared_.buffer), failure);
  if (failure == asio::error::eof) return end_input();
  if (failure && failure != asio::error::would_block) return close();
  if (state_ == State::lingering) {
    lingered_bytes_ += got;
    if (lingered_bytes_ > kLingerBytes) return close();
  } else if (state_ != State::ending) {
    in_.append(shared_.buffer.data(), got);
    if (state_ == State::reading) parse();
  }
  wait_readable();
}

void Connection::end_input() {
  input_ended_ = true;
  if (state_ == State::reading || state_ == State::lingering) return close();
  if (answer_ && answer_->client_gone()) close();
}

void Connection::parse() {
  while (state_ == State::reading && !in_.empty()) {
    if (!begun_) {
      // Empty lines before a request are allowed.
      in_.erase(0, std::min(in_.find_first_not_of("\r\n"), in_.size()));
      if (in_.empty()) return;
      begun_ = true;
      deadline_ = Clock::now() + shared_.limits.read;
    }
    // A chunked body always has this much to come, its last chunk. Beast asserts that it has seen
    // all of it.
    if (header_done_ && parser_->chunked() && in_.size() < std::string_view("0\r\n\r\n").size()) {
      return;
    }
    error_code failure;
    const size_t used = parser_->put(asio::buffer(in_), failure);
    in_.erase(0, used);
    if (!header_done_) header_bytes_ += used;
    const bool stuck = used == 0 && failure == http::error::need_more;
    if (failure == http::error::need_more) failure = {};
    // Beast limits what is not parsed yet, and not the headers together.
    if (failure == http::error::header_limit || header_bytes_ > shared_.limits.header_bytes ||
        (stuck && in_.size() > shared_.limits.header_bytes)) {
      return refuse(431, "the headers are too long");
    }
    if (failure == http::error::body_limit) return refuse(413, "the body is too large");
    if (failure) return refuse(400, "this request is not HTTP");
    if (!header_done_ && parser_->is_header_done() && !accept_header()) return;
    if (parser_->is_done()) return dispatch();
    if (stuck) return;
  }
}

// Refuses what can be refused before the body is read.
bool Connection::accept_header() {
  header_done_ = true;
  const auto& message = parser_->get();
  http11_ = message.version() == 11;
  head_only_ = message.method() == http::verb::head;
  const auto refused = [&](int status, const char* reason) {
    refuse(status, reason);
    return false;
  };
  if (!read_header(*parser_, request_)) return refused(400, "a bad request target or Host");
  if (request_.path.size() > shared_.limits.path_bytes) return refused(414, "the path is too long");
  if (message.count(http::field::transfer_encoding) > 0 && !parser_->chunked()) {
    return refused(501, "of the transfer encodings only chunked is known");
  }
  const size_t limit = shared_.limits.body_bytes(request_.path);
  if (parser_->content_length().value_or(0) > limit) return refused(413, "the body is too large");
  parser_->body_limit(limit);
  parser_->eager(true);
  const std::string expected = field_value(message, "Expect");
  if (!expected.empty() && http11_) {
    if (!boost::beast::iequals(expected, "100-continue")) {
      return refused(417, "of the expectations only 100-continue is known");
    }
    if (!parser_->is_done() && in_.empty()) {
      out_ += "HTTP/1.1 100 Continue\r\n\r\n";
      flush();
    }
  }
  return true;
}

void Connection::dispatch() {
  state_ = State::answering;
  deadline_ = kNever;
  keep_alive_ = parser_->keep_alive() && ++requests_ < shared_.limits.requests_per_connection;
  request_.body = std::move(parser_->get().body());
  parser_.reset();
  answer_ = std::make_shared<HttpAnswer>(
      [self = shared_from_this()] { asio::post(self->shared_.io, [self] { self->flush(); }); },
      shared_.limits.unsent_bytes);
  if (input_ended_) answer_->client_gone();
  const bool quick = shared_.is_quick && shared_.is_quick(request_);
  auto exchange = make_exchange(std::move(request_), answer_);
  if (quick) return shared_.handler(std::move(exchange));
  asio::post(*shared_.workers, [&handler = shared_.handler, taken = std::move(exchange)]() mutable {
    handler(std::move(taken));
  });
}

// An error without a handler, and the end of the connection.
void Connection::refuse(int status, std::string_view message) {
  state_ = State::ending;
  keep_alive_ = false;
  parser_.reset();
  append_head(plain_error(status, message), false);
  flush();
}

void Connection::append_head(const HttpReply& reply, bool streamed) {
  keep_alive_ = keep_alive_ && !shared_.draining;
  framing_ = !streamed ? HttpFraming::content_length
             : http11_ ? HttpFraming::chunked
                       : HttpFraming::close;
  if (framing_ == HttpFraming::close) keep_alive_ = false;
  const std::string_view connection = !keep_alive_ ? "close" : http11_ ? "" : "keep-alive";
  const auto reason = http::obsolete_reason(static_cast<http::status>(reply.status));
  out_ +=
      answer_head(reply, {reason.data(), reason.size()}, framing_, reply.body.size(), connection);
  head_only_ = head_only_ || reply.status == 204 || reply.status == 304;
  if (!streamed && !head_only_) out_ += reply.body;
}

// Sends what there is to send, or goes on to what comes after it.
void Connection::flush() {
  if (state_ == State::closed || writing_) return;
  if (state_ == State::answering && !collect()) return close(true);
  if (sent_ < out_.size()) return write();
  if (state_ == State::ending) return linger();
  if (collected_) finish_answer();
}

// Moves what the handler has given so far into out_. False if the stream cannot go on.
bool Connection::collect() {
  const HttpAnswer::Batch batch = answer_->take();
  if (batch.dropped) return false;
  if (batch.head) append_head(*batch.head, batch.streamed);
  if (!batch.bytes.empty() && !head_only_) {
    const bool chunked = framing_ == HttpFraming::chunked;
    if (chunked) fmt::format_to(std::back_inserter(out_), "{:x}\r\n", batch.bytes.size());
    out_ += batch.bytes;
    if (chunked) out_ += "\r\n";
  }
  if (batch.ended && !collected_) {
    collected_ = true;
    if (framing_ == HttpFraming::chunked && !head_only_) out_ += "0\r\n\r\n";
  }
  answer_->set_sending(out_.size() - sent_);
  return true;
}

void Connection::write() {
  writing_ = true;
  if (state_ != State::reading) deadline_ = Clock::now() + shared_.limits.stall;
  socket_.async_write_some(asio::buffer(out_.data() + sent_, out_.size() - sent_),
                           [self = shared_from_this()](const error_code& failure, size_t count) {
                             self->writing_ = false;
                             if (self->state_ == State::closed) return;
                             if (failure) return self->close();
                             self->sent_ += count;
                             self->on_written();
                           });
}

void Connection::on_written() {
  if (sent_ == out_.size()) {
    sent_ = 0;
    out_.clear();
    if (out_.capacity() > shared_.buffer.size()) out_.shrink_to_fit();
    if (state_ != State::reading) deadline_ = kNever;
  }
  if (answer_) answer_->set_sending(out_.size() - sent_);
  flush();
}

void Connection::finish_answer() {
  answer_->detach();
  answer_.reset();
  collected_ = false;
  if (!keep_alive_ || shared_.draining) return linger();
  expect_request();
  parse();
  if (input_ended_ && state_ == State::reading) return close();
  wait_readable();
}

void Connection::linger() {
  if (input_ended_) return close();
  state_ = State::lingering;
  deadline_ = Clock::now() + kLingerTime;
  in_.clear();
  error_code ignored;
  socket_.shutdown(tcp::socket::shutdown_send, ignored);
  wait_readable();
}

void Connection::check_deadline(Clock::time_point now) {
  if (now < deadline_) return;
  if (state_ == State::reading && begun_) return refuse(408, "the request took too long");
  close(state_ == State::answering || state_ == State::ending);
}

// A reset throws away what the kernel has not sent: for clients that do not read it.
void Connection::close(bool reset) {
  if (state_ == State::closed) return;
  state_ = State::closed;
  error_code ignored;
  if (reset) socket_.set_option(tcp::socket::linger(true, 0), ignored);
  socket_.close(ignored);
  parser_.reset();
  const auto self = shared_from_this();
  shared_.connections.erase(self);
  if (const auto answer = std::exchange(answer_, nullptr)) answer->detach();
}

// Each connection takes a file descriptor; the usual soft limit is 1024.
void raise_file_limit(size_t wanted) {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= wanted) return;
  limit.rlim_cur = std::min<rlim_t>(wanted, limit.rlim_max);
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

}  // namespace

size_t default_body_bytes(std::string_view path) {
  return path.starts_with("/api/") ? 64 << 10 : 8 << 20;
}

struct HttpServer::Impl : Shared {
  std::list<tcp::acceptor> acceptors;
  asio::steady_timer timer{io};  // ticks while there are connections
  bool ticking = false;
  Clock::time_point drained_by = kNever;

  bool listen(tcp::endpoint endpoint, error_code& failure) {
    tcp::acceptor acceptor(io);
    acceptor.open(endpoint.protocol(), failure);
    // Asio sets no SO_REUSEPORT, which would let two servers share the port.
    if (!failure) acceptor.set_option(tcp::acceptor::reuse_address(true), failure);
    if (!failure) acceptor.bind(endpoint, failure);
    if (!failure) acceptor.listen(kBacklog, failure);
    if (!failure) acceptors.push_back(std::move(acceptor));
    return !failure;
  }

  void accept(tcp::acceptor& acceptor) {
    acceptor.async_accept([this, &acceptor](const error_code& failure, tcp::socket socket) {
      if (!acceptor.is_open()) return;
      if (failure) return accept_later(acceptor);
      admit(std::move(socket));
      accept(acceptor);
    });
  }

  // No file descriptor is free, perhaps: there may be one soon.
  void accept_later(tcp::acceptor& acceptor) {
    auto pause = std::make_shared<asio::steady_timer>(io, kTick);
    pause->async_wait([this, &acceptor, pause](const error_code&) {
      if (acceptor.is_open()) accept(acceptor);
    });
  }

  void admit(tcp::socket socket) {
    if (connections.size() >= limits.connections + kRefusedConnections) return;
    const bool refused = connections.size() >= limits.connections;
    const auto connection = std::make_shared<Connection>(*this, std::move(socket));
    connections.insert(connection);
    connection->start(refused);
    if (!ticking) tick();
  }

  void tick() {
    const Clock::time_point now = Clock::now();
    if (now >= drained_by) return close_all();
    for (const auto& connection : std::vector(connections.begin(), connections.end())) {
      connection->check_deadline(now);
    }
    ticking = !connections.empty();
    if (!ticking) return;
    timer.expires_after(kTick);
    timer.async_wait([this](const error_code& cancelled) {
      if (!cancelled) tick();
    });
  }

  void close_acceptors() {
    error_code ignored;
    for (tcp::acceptor& acceptor : acceptors) acceptor.close(ignored);
  }

  void close_all() {
    close_acceptors();
    timer.cancel();
    for (const auto& connection : std::vector(connections.begin(), connections.end())) {
      connection->close();
    }
  }

  void drain_until(Clock::time_point limit) {
    draining = true;
    drained_by = limit;
    close_acceptors();
    for (const auto& connection : std::vector(connections.begin(), connections.end())) {
      if (connection->is_idle()) connection->close();
    }
  }
};

HttpServer::HttpServer(HttpHandler handler, const HttpLimits& limits,
                       std::function<bool(const HttpRequest&)> is_quick)
    : impl_(std::make_unique<Impl>()) {
  impl_->handler = std::move(handler);
  impl_->is_quick = std::move(is_quick);
  impl_->limits = limits;
}

HttpServer::~HttpServer() = default;

int HttpServer::bind(const std::string& host, int port) {
  raise_file_limit(impl_->limits.connections + 512);
  const bool bracketed = host.starts_with('[') && host.ends_with(']');
  error_code failure;
  tcp::resolver resolver(impl_->io);
  const auto found =
      resolver.resolve(bracketed ? host.substr(1, host.size() - 2) : host, std::to_string(port),
                       tcp::resolver::passive | tcp::resolver::numeric_service, failure);
  std::set<tcp::endpoint> endpoints;
  for (const auto& entry : found) endpoints.insert(entry.endpoint());
  int bound = port;
  for (tcp::endpoint endpoint : endpoints) {
    endpoint.port(static_cast<uint16_t>(bound));
    if (impl_->listen(endpoint, failure)) {
      bound = impl_->acceptors.back().local_endpoint().port();
    } else if (failure == asio::error::address_in_use && port != 0) {
      impl_->acceptors.clear();
      break;
    }
  }
  if (impl_->acceptors.empty()) {
    throw Error("cannot listen on {}:{}: taken, or not an address of this machine (try --port {})",
                host, port, port == 8080 ? 8081 : 8080);
  }
  return bound;
}

void HttpServer::run() {
  impl_->workers.emplace(impl_->limits.threads);
  for (tcp::acceptor& acceptor : impl_->acceptors) impl_->accept(acceptor);
  impl_->io.run();  // until every socket is closed
  // Handlers that have not begun are dropped, with their clients gone.
  impl_->workers->stop();
  impl_->workers->join();
  impl_->workers.reset();
}

void HttpServer::stop() {
  asio::post(impl_->io, [this] { impl_->close_all(); });
}

void HttpServer::drain(std::chrono::milliseconds limit) {
  asio::post(impl_->io, [this, until = Clock::now() + limit] { impl_->drain_until(until); });
}

}  // namespace ridge
