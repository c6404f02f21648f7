// The threads of one lane and the handlers that wait for them.
#pragma once

#include <atomic>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <thread>
#include <utility>
#include <vector>

#include "http/http.h"

namespace ridge {

class HttpLaneThreads {
 public:
  explicit HttpLaneThreads(const HttpLane& lane);
  ~HttpLaneThreads();  // waits for handlers that run; those that have not begun are dropped
  HttpLaneThreads(const HttpLaneThreads&) = delete;
  HttpLaneThreads& operator=(const HttpLaneThreads&) = delete;

  bool is_full() const { return waiting_ >= most_waiting_; }
  // Must not throw.
  template <typename Handler>
  void run(Handler handler) {
    ++waiting_;
    boost::asio::post(tasks_, [this, handler = std::move(handler)]() mutable {
      --waiting_;
      handler();
    });
  }

 private:
  const size_t most_waiting_;
  std::atomic<size_t> waiting_ = 0;
  boost::asio::io_context tasks_;
  boost::asio::executor_work_guard<boost::asio::io_context::executor_type> open_;
  std::vector<std::thread> threads_;
};

}  // namespace ridge
