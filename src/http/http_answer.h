// One answer on its way from a handler, on any thread, to its connection, on the I/O thread.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "http/http.h"
#include "http/http_bodies.h"

namespace ridge {

class HttpAnswer {
 public:
  // `wake` makes the I/O thread take(); it is called with the lock held and must not wait.
  HttpAnswer(std::function<void()> wake, size_t unsent_limit)
      : wake_(std::move(wake)), unsent_limit_(unsent_limit) {}

  // The handler's side: HttpExchange says what each does.
  void reply(HttpReply reply);
  void begin_stream(HttpReply head);
  bool write(std::string_view bytes);
  void end();
  void on_closed(std::function<void()> callback);
  bool closed() const;
  void abandon();  // the exchange is destroyed

  // The connection's side.
  struct Batch {
    std::optional<HttpReply> head;
    std::string bytes;      // of a stream
    bool streamed = false;  // there is more than head's body
    bool ended = false;
  };
  bool is_dropped() const;  // a stream that cannot go on: the connection must close
  Batch take();
  void set_sending(size_t bytes);  // taken, and not yet accepted by the kernel
  bool client_gone();              // calls on_closed; true if the connection is of no more use
  void detach();                   // the connection has closed, or has sent the whole answer

 private:
  void wake();  // these two with the lock held
  void drop();

  mutable std::mutex mutex_;
  std::function<void()> wake_;  // empty once detached
  const size_t unsent_limit_;
  std::optional<HttpReply> head_;
  std::string queued_;
  size_t sending_ = 0;
  std::function<void()> on_closed_;
  bool begun_ = false, streamed_ = false, ended_ = false;
  bool gone_ = false;   // the client has gone or is too slow
  bool woken_ = false;  // and has not taken yet
};

// The handler's hold on an answer: abandons it when destroyed. `body` is the lease of the
// request's.
std::shared_ptr<HttpExchange> make_exchange(HttpRequest request, std::shared_ptr<HttpAnswer> answer,
                                            BodyLease body);

}  // namespace ridge
