#include "serve/http_connection.h"

#include <fmt/format.h>
#include <netinet/tcp.h>

#include <boost/asio/post.hpp>
#include <iterator>
#include <utility>

namespace ridge {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;
using Clock = std::chrono::steady_clock;
using namespace std::chrono_literals;

constexpr auto kNever = Clock::time_point::max();

// While an answer is under way the socket is read on, to notice when the client goes. What the
// client sends meanwhile belongs to its next request. So much of it is kept; then reading pauses.
constexpr size_t kPipelinedBytes = 64 << 10;

// After its last answer the server reads on until the client closes too: closing with unread bytes
// would reset the connection, and the client might lose the answer.
constexpr auto kLingerTime = 2s;
constexpr size_t kLingerBytes = 16 << 20;

// The kernel takes no more unsent bytes than this for one connection. Left alone it takes megabytes
// before a slow reader shows.
constexpr int kKernelUnsentBytes = 128 << 10;

// A send takes about 5 us.
constexpr int kFlushGroup = 32;

// A long answer's buffer is freed when it is sent.
constexpr size_t kKeptCapacity = 64 << 10;

}  // namespace

void HttpServerState::flush_soon(std::shared_ptr<HttpConnection> connection) {
  const std::lock_guard lock(mutex_);
  ready_.push_back(std::move(connection));
  if (ready_.size() == 1) asio::post(io, [this] { flush_some(); });
}

// A thousand streams often get a token each at the same moment. Between groups of them the I/O
// thread looks at its sockets, so that other clients wait for a group and not for all.
void HttpServerState::flush_some() {
  for (int i = 0; i < kFlushGroup; ++i) {
    std::shared_ptr<HttpConnection> connection;
    {
      const std::lock_guard lock(mutex_);
      connection = ready_.front();
    }
    connection->flush();
    const std::lock_guard lock(mutex_);
    ready_.pop_front();
    if (ready_.empty()) return;
  }
  asio::post(io, [this] { flush_some(); });
}

void HttpConnection::start(bool refused) {
  error_code ignored;
  socket_.set_option(tcp::no_delay(true), ignored);
  socket_.non_blocking(true, ignored);
  ::setsockopt(socket_.native_handle(), IPPROTO_TCP, TCP_NOTSENT_LOWAT, &kKernelUnsentBytes,
               sizeof kKernelUnsentBytes);
  if (refused) return refuse(plain_error(503, "too many connections"));
  expect_request();
  wait_readable();
}

void HttpConnection::expect_request() {
  state_ = State::reading;
  deadline_ = Clock::now() + server_.limits.idle;
  reader_.expect_next();
}

void HttpConnection::wait_readable() {
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

void HttpConnection::read() {
  error_code failure;
  const size_t got = socket_.read_some(asio::buffer(server_.buffer), failure);
  if (failure == asio::error::eof) return end_input();
  if (failure && failure != asio::error::would_block) return close();
  if (state_ == State::ending || state_ == State::lingering) {
    lingered_bytes_ += got;
    if (lingered_bytes_ > kLingerBytes) return close();
  } else {
    in_.append(server_.buffer.data(), got);
    read_requests();
  }
  wait_readable();
}

void HttpConnection::end_input() {
  input_ended_ = true;
  if (state_ == State::reading || state_ == State::lingering) return close();
  if (answer_ && answer_->client_gone()) close();
}

void HttpConnection::read_requests() {
  if (state_ != State::reading) return;
  const bool had_begun = reader_.begun();
  const HttpReader::Result result = reader_.read(in_);
  if (result == HttpReader::Result::done) return dispatch();
  if (result == HttpReader::Result::refused) return refuse(reader_.refusal());
  if (reader_.begun() && !had_begun) deadline_ = Clock::now() + server_.limits.read;
  if (reader_.wants_continue()) {
    out_ += "HTTP/1.1 100 Continue\r\n\r\n";
    flush();
  }
}

void HttpConnection::dispatch() {
  state_ = State::answering;
  deadline_ = kNever;
  keep_alive_ = reader_.keeps_alive() && ++requests_ < server_.limits.requests_per_connection;
  http11_ = reader_.is_http11();
  head_only_ = reader_.is_head_only();
  answer_ = std::make_shared<HttpAnswer>(
      [self = shared_from_this()] { self->server_.flush_soon(self); }, server_.limits.unsent_bytes);
  if (input_ended_) answer_->client_gone();
  const bool quick = server_.is_quick && server_.is_quick(reader_.request());
  auto exchange = make_exchange(std::move(reader_.request()), answer_);
  if (quick) return server_.handler(std::move(exchange));
  asio::post(*server_.workers, [&handler = server_.handler, taken = std::move(exchange)]() mutable {
    handler(std::move(taken));
  });
}

// An error without a handler, and the end of the connection.
void HttpConnection::refuse(const HttpReply& reply) {
  state_ = State::ending;
  keep_alive_ = false;
  head_only_ = reader_.is_head_only();
  append_head(reply, false);
  flush();
}

void HttpConnection::append_head(const HttpReply& reply, bool streamed) {
  keep_alive_ = keep_alive_ && !server_.draining;
  framing_ = !streamed ? HttpFraming::content_length
             : http11_ ? HttpFraming::chunked
                       : HttpFraming::close;
  if (framing_ == HttpFraming::close) keep_alive_ = false;
  const std::string_view connection = !keep_alive_ ? "close" : http11_ ? "" : "keep-alive";
  out_ += answer_head(reply, framing_, reply.body.size(), connection);
  head_only_ = head_only_ || reply.status == 204 || reply.status == 304;
  if (!streamed && !head_only_) out_ += reply.body;
}

// Sends what there is to send, or goes on to what comes after it.
void HttpConnection::flush() {
  if (state_ == State::closed) return;
  if (answer_ && answer_->is_dropped()) return close(true);
  if (blocked_) return;
  if (state_ == State::answering) collect();
  sending_.swap(out_);
  if (!send()) return;
  if (state_ == State::ending) return linger();
  if (collected_) finish_answer();
}

// Moves what the handler has given so far into out_.
void HttpConnection::collect() {
  const HttpAnswer::Batch batch = answer_->take();
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
  answer_->set_sending(out_.size());
}

// True when all of sending_ is sent. Otherwise the kernel takes no more, and flush() is called when
// it does again.
bool HttpConnection::send() {
  error_code failure;
  if (!sending_.empty()) {
    sent_ +=
        socket_.write_some(asio::buffer(sending_.data() + sent_, sending_.size() - sent_), failure);
  }
  if (failure && failure != asio::error::would_block) {
    close();
    return false;
  }
  if (answer_) answer_->set_sending(sending_.size() - sent_);
  if (sent_ == sending_.size()) {
    sent_ = 0;
    sending_.clear();
    if (sending_.capacity() > kKeptCapacity) sending_.shrink_to_fit();
    if (state_ != State::reading) deadline_ = kNever;
    return true;
  }
  if (state_ != State::reading) deadline_ = Clock::now() + server_.limits.stall;
  blocked_ = true;
  socket_.async_wait(tcp::socket::wait_write,
                     [self = shared_from_this()](const error_code& wait_failure) {
                       self->blocked_ = false;
                       if (self->state_ == State::closed) return;
                       if (wait_failure) return self->close();
                       if (self->send()) self->flush();
                     });
  return false;
}

void HttpConnection::finish_answer() {
  answer_->detach();
  answer_.reset();
  collected_ = false;
  if (!keep_alive_ || server_.draining) return linger();
  expect_request();
  read_requests();
  if (input_ended_ && state_ == State::reading) return close();
  wait_readable();
}

void HttpConnection::close_if_idle() {
  if (is_idle()) read();  // a request may have come meanwhile
  if (is_idle()) close();
}

void HttpConnection::linger() {
  if (input_ended_) return close();
  state_ = State::lingering;
  deadline_ = Clock::now() + kLingerTime;
  in_.clear();
  error_code ignored;
  socket_.shutdown(tcp::socket::shutdown_send, ignored);
  wait_readable();
}

void HttpConnection::check_deadline(Clock::time_point now) {
  if (now < deadline_) return;
  if (state_ == State::reading && reader_.begun()) {
    return refuse(plain_error(408, "the request took too long"));
  }
  close(state_ == State::answering || state_ == State::ending);
}

// A reset throws away what the kernel has not sent: for clients that do not read it.
void HttpConnection::close(bool reset) {
  if (state_ == State::closed) return;
  state_ = State::closed;
  error_code ignored;
  if (reset) socket_.set_option(tcp::socket::linger(true, 0), ignored);
  socket_.close(ignored);
  const auto self = shared_from_this();
  server_.connections.erase(self);
  if (const auto answer = std::exchange(answer_, nullptr)) answer->detach();
}

}  // namespace ridge
