#include "http/http_answer.h"

#include "http/http_text.h"

namespace ridge {
namespace {

class Exchange : public HttpExchange {
 public:
  Exchange(HttpRequest request, std::shared_ptr<HttpAnswer> answer, BodyLease body)
      : request_(std::move(request)), body_(std::move(body)), answer_(std::move(answer)) {}
  ~Exchange() override { answer_->abandon(); }
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;

  const HttpRequest& request() const override { return request_; }
  void release_body() override {
    std::string().swap(request_.body);
    body_.release();
  }
  void reply(HttpReply reply) override { answer_->reply(std::move(reply)); }
  void begin_stream(HttpReply head) override { answer_->begin_stream(std::move(head)); }
  bool write(std::string_view bytes) override { return answer_->write(bytes); }
  void end() override { answer_->end(); }
  void on_closed(std::function<void()> callback) override {
    answer_->on_closed(std::move(callback));
  }
  bool closed() const override { return answer_->closed(); }

 private:
  HttpRequest request_;
  BodyLease body_;
  const std::shared_ptr<HttpAnswer> answer_;
};

}  // namespace

std::shared_ptr<HttpExchange> make_exchange(HttpRequest request, std::shared_ptr<HttpAnswer> answer,
                                            BodyLease body) {
  return std::make_shared<Exchange>(std::move(request), std::move(answer), std::move(body));
}

void HttpAnswer::wake() {
  if (woken_ || !wake_) return;
  woken_ = true;
  wake_();
}

// Wakes the connection even if it has been woken: it may wait for the client to read.
void HttpAnswer::drop() {
  gone_ = true;
  woken_ = false;
  wake();
}

// Callbacks are called and destroyed outside of the lock: each function that takes one out declares
// it before the lock, so that it is destroyed after.

void HttpAnswer::reply(HttpReply reply) {
  std::function<void()> released;
  const std::lock_guard lock(mutex_);
  if (begun_) return;
  begun_ = ended_ = true;
  head_ = std::move(reply);
  on_closed_.swap(released);
  wake();
}

void HttpAnswer::begin_stream(HttpReply head) {
  const std::lock_guard lock(mutex_);
  if (begun_) return;
  begun_ = streamed_ = true;
  head_ = std::move(head);
  wake();
}

bool HttpAnswer::write(std::string_view bytes) {
  const std::lock_guard lock(mutex_);
  if (!streamed_ || ended_ || gone_) return false;
  // The bound is looked at before the bytes are added, so that one long write does not end a stream
  // whose client keeps up.
  if (queued_.size() + sending_ > unsent_limit_) {
    drop();
    return false;
  }
  queued_ += bytes;
  wake();
  return true;
}

void HttpAnswer::end() {
  std::function<void()> released;
  const std::lock_guard lock(mutex_);
  if (!streamed_ || ended_ || gone_) return;
  ended_ = true;
  on_closed_.swap(released);
  wake();
}

void HttpAnswer::on_closed(std::function<void()> callback) {
  {
    const std::lock_guard lock(mutex_);
    if (ended_) return;
    if (!gone_) {
      on_closed_.swap(callback);
      return;
    }
  }
  callback();
}

bool HttpAnswer::closed() const {
  const std::lock_guard lock(mutex_);
  return gone_;
}

void HttpAnswer::abandon() {
  reply(plain_error(500, "a fault of Ridge: no answer was given"));  // unless there is an answer
  std::function<void()> released;
  const std::lock_guard lock(mutex_);
  on_closed_.swap(released);
  if (!ended_) drop();
}

bool HttpAnswer::is_dropped() const {
  const std::lock_guard lock(mutex_);
  return streamed_ && gone_ && !ended_;
}

HttpAnswer::Batch HttpAnswer::take() {
  const std::lock_guard lock(mutex_);
  woken_ = false;
  Batch batch;
  batch.head.swap(head_);
  batch.bytes.swap(queued_);
  batch.streamed = streamed_;
  batch.ended = ended_;
  return batch;
}

void HttpAnswer::set_sending(size_t bytes) {
  const std::lock_guard lock(mutex_);
  sending_ = bytes;
}

bool HttpAnswer::client_gone() {
  std::function<void()> callback;
  bool useless = false;
  {
    const std::lock_guard lock(mutex_);
    gone_ |= !ended_;
    on_closed_.swap(callback);
    useless = streamed_ && !ended_;
  }
  if (callback) callback();
  return useless;
}

void HttpAnswer::detach() {
  std::function<void()> released;
  {
    const std::lock_guard lock(mutex_);
    wake_.swap(released);
  }
  client_gone();
}

}  // namespace ridge
