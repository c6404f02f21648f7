// A client of /api/live: reads server-sent events from a socket and keeps them.
#pragma once

#include <chrono>
#include <condition_variable>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "http/sockets.h"

namespace ridge {

class LiveClient {
 public:
  explicit LiveClient(int port, const std::string& query = "")
      : connection_(port), thread_([this, query] {
          connection_.send("GET /api/live" + query + " HTTP/1.1\r\nHost: localhost\r\n\r\n");
          head_read(connection_.receive_until("\r\n\r\n"));
          std::string text;
          while (read_chunk(text)) parse(text);
          const std::lock_guard lock(mutex_);
          ended_ = true;
          changed_.notify_all();
        }) {}
  ~LiveClient() {
    leave();
    thread_.join();
  }
  void leave() { connection_.end(); }

  int status() {
    wait_until([&] { return status_ != 0; });
    return status_;
  }
  // Waits for `done(events)`; false after kPatience and when the stream ends before.
  template <typename Done>
  bool wait(Done done) {
    wait_until([&] { return done(events_) || ended_; });
    const std::lock_guard lock(mutex_);
    return done(events_);
  }
  bool wait_for(const std::string& name) {
    return wait([&](const auto& events) { return events.contains(name); });
  }
  bool wait_for_end() {
    return wait_until([&] { return ended_; });
  }
  bool ended_whole() const { return whole_; }  // by the server, with the last chunk
  // What has come, by name.
  std::vector<nlohmann::json> events(const std::string& name) {
    const std::lock_guard lock(mutex_);
    return events_[name];
  }

 private:
  template <typename Done>
  bool wait_until(Done done) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, kPatience, done);
  }
  void head_read(const std::string& head) {
    const std::lock_guard lock(mutex_);
    status_ = head.size() > 12 ? std::stoi(head.substr(9, 3)) : -1;
    changed_.notify_all();
  }
  bool read_chunk(std::string& text) {
    const std::string size = connection_.receive_until("\r\n");
    if (status_ != 200 || size.size() < 3) return false;
    size_t left = std::stoul(size, nullptr, 16) + 2;
    whole_ = left == 2;
    if (whole_) return false;
    while (left > 0) {
      const std::string part = connection_.receive_some(left);
      if (part.empty()) return false;
      left -= part.size();
      text += part;
    }
    text.resize(text.size() - 2);
    return true;
  }
  void parse(std::string& text) {
    for (size_t end = 0; (end = text.find("\n\n")) != std::string::npos; text.erase(0, end + 2)) {
      const size_t data = text.find("\ndata: ");
      if (!text.starts_with("event: ") || data > end) continue;  // a comment
      const std::lock_guard lock(mutex_);
      events_[text.substr(7, data - 7)].push_back(
          nlohmann::json::parse(text.substr(data + 7, end - data - 7)));
      changed_.notify_all();
    }
  }

  Connection connection_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, std::vector<nlohmann::json>> events_;
  int status_ = 0;
  bool ended_ = false, whole_ = false;
  std::thread thread_;
};

}  // namespace ridge
