#include "http/http_connection.h"

#include <fmt/format.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
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
constexpr size_t kPipelinedBytes = 16 << 10;

// After its last answer the server reads on until the client closes too: closing with unread bytes
// would reset the connection, and the client might lose the answer.
constexpr auto kLingerTime = 2s;
constexpr size_t kLingerBytes = 16 << 20;

// The kernel takes no more unsent bytes than this for one connection. Left alone it takes megabytes
// before a slow reader shows.
constexpr int kKernelUnsentBytes = 128 << 10;

// A send takes about 5 us, a read of a whole buffer about 30 us.
constexpr int kFlushGroup = 32;
constexpr size_t kReadGroup = 8;

// The buffers of long requests and answers are freed after them.
constexpr size_t kKeptCapacity = 16 << 10;

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

// Hundreds of clients may send bodies as fast as they are read. They are read a buffer each in
// turn, and between groups of them the I/O thread looks at its other sockets.
void HttpServerState::read_soon(std::shared_ptr<HttpConnection> connection) {
  arrived_.push_back(std::move(connection));
  if (!std::exchange(reads_posted_, true)) asio::post(io, [this] { read_some(); });
}

void HttpServerState::read_some() {
  for (size_t left = std::min(kReadGroup, arrived_.size()); left > 0; --left) {
    const std::shared_ptr<HttpConnection> connection = std::move(arrived_.front());
    arrived_.pop_front();
    connection->read_more();
  }
  reads_posted_ = !arrived_.empty();
  if (reads_posted_) asio::post(io, [this] { read_some(); });
}

std::array<HttpConnectionGroup*, 2> HttpConnection::groups() {
  if (is_reserved()) return {&server_.reserved, nullptr};
  return {&server_.all, &server_.clients[*client_]};
}

void HttpConnection::start() {
  for (HttpConnectionGroup* group : groups()) {
    if (group != nullptr) ++group->open;
  }
  error_code ignored;
  socket_.set_option(tcp::no_delay(true), ignored);
  socket_.non_blocking(true, ignored);
  ::setsockopt(socket_.native_handle(), IPPROTO_TCP, TCP_NOTSENT_LOWAT, &kKernelUnsentBytes,
               sizeof kKernelUnsentBytes);
  expect_request();
  wait_readable();
}

void HttpConnection::begin_reading() {
  if (state_ == State::reading) return;
  state_ = State::reading;
  const auto all = groups();
  for (size_t i = 0; i < all.size(); ++i) {
    if (all[i] != nullptr) places_[i] = all[i]->reading.insert(all[i]->reading.end(), this);
  }
}

void HttpConnection::end_reading(State next) {
  if (state_ == State::reading) {
    const auto all = groups();
    for (size_t i = 0; i < all.size(); ++i) {
      if (all[i] != nullptr) all[i]->reading.erase(places_[i]);
    }
  }
  state_ = next;
}

void HttpConnection::expect_request() {
  begin_reading();
  // Who has just connected may be a client that others keep from sending at once.
  deadline_ = Clock::now() + (requests_ == 0 ? server_.limits.header : server_.limits.idle);
  reader_.expect_next();
  if (in_.empty() && in_.capacity() > kKeptCapacity) in_.shrink_to_fit();
}

void HttpConnection::wait_readable() {
  if (waiting_ || input_ended_ || state_ == State::closed) return;
  if (in_.size() >= kPipelinedBytes && state_ != State::reading) return;
  waiting_ = true;
  socket_.async_wait(tcp::socket::wait_read,
                     [self = shared_from_this()](const error_code& failure) {
                       if (self->state_ == State::closed) return;
                       if (failure) return self->close();
                       if (self->reads_body()) return self->server_.read_soon(self);
                       self->read_more();
                     });
}

// A body, or what is thrown away after the last answer.
bool HttpConnection::reads_body() const {
  return state_ == State::reading ? reader_.has_header() : state_ != State::answering;
}

// Without copying it.
size_t HttpConnection::discard(error_code& failure) {
  constexpr size_t kMost = 1 << 20;
  const ssize_t got = ::recv(socket_.native_handle(), nullptr, kMost, MSG_TRUNC | MSG_DONTWAIT);
  if (got < 0) failure = error_code(errno, boost::system::system_category());
  if (got == 0) failure = asio::error::eof;
  return got > 0 ? static_cast<size_t>(got) : 0;
}

void HttpConnection::read_more() {
  waiting_ = false;
  if (state_ != State::closed) read();
}

void HttpConnection::read() {
  error_code failure;
  const bool thrown_away = state_ == State::ending || state_ == State::lingering;
  // An answer under way leaves room for so much of the next request, see wait_readable().
  const size_t most = state_ == State::answering ? kPipelinedBytes : server_.buffer.size();
  const size_t got = thrown_away ? discard(failure)
                                 : socket_.read_some(asio::buffer(server_.buffer, most), failure);
  if (failure == asio::error::eof) return end_input();
  if (failure && failure != asio::error::would_block) return close();
  if (thrown_away) {
    lingered_bytes_ += got;
    if (lingered_bytes_ > kLingerBytes) return close();
  } else {
    in_.append(server_.buffer.data(), got);
    read_requests();
  }
  wait_readable();
}

// The client has closed its sending side, or the whole socket. The first gets its answer.
void HttpConnection::end_input() {
  input_ended_ = true;
  if (state_ == State::reading || state_ == State::lingering) return close();
  if (state_ == State::answering) doubt_client();
}

void HttpConnection::doubt_client() {
  if (!http11_) {
    if (answer_->client_gone()) close();
    return;
  }
  doubted_at_ = Clock::now();
  wait_reset();
}

// Sends what the client may skip. A socket that is closed answers to it with a reset.
void HttpConnection::provoke_reset() {
  doubted_at_ = kNever;
  if (!head_sent_) {
    out_ += "HTTP/1.1 100 Continue\r\n\r\n";
  } else if (event_stream_ && !collected_) {
    append_body(":\n\n");
  }
  flush();
}

void HttpConnection::wait_reset() {
  socket_.async_wait(tcp::socket::wait_error,
                     [self = shared_from_this()](const error_code&) { self->close(); });
}

void HttpConnection::read_requests() {
  if (state_ != State::reading) return;
  const bool had_begun = reader_.begun(), had_header = reader_.has_header();
  const HttpReader::Result result = reader_.read(in_);
  if (result == HttpReader::Result::done) return dispatch();
  if (result == HttpReader::Result::refused) return refuse(reader_.refusal());
  if (reader_.begun() && !had_begun) {
    begun_at_ = Clock::now();
    deadline_ = kNever;  // is_late() knows more
  }
  if (reader_.has_header() && !had_header) header_at_ = Clock::now();
  if (reader_.wants_continue()) {
    out_ += "HTTP/1.1 100 Continue\r\n\r\n";
    flush();
  }
}

bool HttpConnection::is_late(Clock::time_point now) const {
  if (state_ != State::reading || !reader_.begun()) return false;
  const HttpLimits& limits = server_.limits;
  if (now - begun_at_ > limits.read) return true;
  if (!reader_.has_header()) return now - begun_at_ > limits.header;
  const std::chrono::duration<double> body_time = now - header_at_;
  return body_time > limits.body_grace &&
         double(reader_.body_bytes()) < double(limits.body_rate) * body_time.count();
}

void HttpConnection::dispatch() {
  end_reading(State::answering);
  deadline_ = kNever;
  keep_alive_ = reader_.keeps_alive() && ++requests_ < server_.limits.requests_per_connection &&
                !is_reserved();
  http11_ = reader_.is_http11();
  head_only_ = reader_.is_head_only();
  head_sent_ = event_stream_ = false;
  answer_ = std::make_shared<HttpAnswer>(
      [self = shared_from_this()] { self->server_.flush_soon(self); }, server_.limits.unsent_bytes);
  const HttpRequest& request = reader_.request();
  const int lane = server_.limits.lane(request);
  const bool refused = is_reserved() && !server_.limits.reserve(request);
  auto exchange = make_exchange(std::move(reader_.request()), answer_, reader_.take_lease());
  if (refused) {
    exchange->reply(busy_error("too many connections", 1));
  } else if (lane == kIoLane) {
    server_.handler(std::move(exchange));
  } else if (HttpLaneThreads& threads = server_.lanes[static_cast<size_t>(lane)];
             threads.is_full()) {
    exchange->reply(busy_error("too many requests wait: try again", 1));
  } else {
    threads.run([&handler = server_.handler, taken = std::move(exchange)]() mutable {
      handler(std::move(taken));
    });
  }
  if (input_ended_) doubt_client();
}

// An error without a handler, and the end of the connection.
void HttpConnection::refuse(const HttpReply& reply) {
  end_reading(State::ending);
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
  head_sent_ = true;
  event_stream_ = streamed && has_media_type(reply.type, "text/event-stream");
}

// Of a stream.
void HttpConnection::append_body(std::string_view bytes) {
  if (bytes.empty() || head_only_) return;
  const bool chunked = framing_ == HttpFraming::chunked;
  if (chunked) fmt::format_to(std::back_inserter(out_), "{:x}\r\n", bytes.size());
  out_ += bytes;
  if (chunked) out_ += "\r\n";
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
  append_body(batch.bytes);
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
  doubted_at_ = kNever;
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

bool HttpConnection::give_place() {
  const auto self = shared_from_this();
  if (is_idle()) read();  // a request may have come meanwhile
  if (state_ != State::reading) return false;
  close();
  return true;
}

void HttpConnection::linger() {
  if (input_ended_) return close();
  end_reading(State::lingering);
  deadline_ = Clock::now() + kLingerTime;
  in_.clear();
  error_code ignored;
  socket_.shutdown(tcp::socket::shutdown_send, ignored);
  wait_readable();
}

void HttpConnection::check_deadline(Clock::time_point now) {
  if (is_late(now)) return refuse(plain_error(408, "the request took too long"));
  if (state_ == State::answering && now - server_.limits.half_closed > doubted_at_) {
    provoke_reset();
  }
  if (now < deadline_) return;
  close(state_ == State::answering || state_ == State::ending);
}

// A reset throws away what the kernel has not sent: for clients that do not read it.
void HttpConnection::close(bool reset) {
  if (state_ == State::closed) return;
  end_reading(State::closed);
  for (HttpConnectionGroup* group : groups()) {
    if (group != nullptr) --group->open;
  }
  error_code ignored;
  if (reset) socket_.set_option(tcp::socket::linger(true, 0), ignored);
  socket_.close(ignored);
  const auto self = shared_from_this();
  server_.connections.erase(self);
  if (const auto answer = std::exchange(answer_, nullptr)) answer->detach();
}

}  // namespace ridge
