// A Hub on loopback: its API's listing and its files, large ones behind a redirect to a second
// server. Faults are put in per request.
#pragma once

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <functional>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "hub/hash.h"

namespace ridge::fake {

struct Request {
  std::string path;                            // with the query
  std::map<std::string, std::string> headers;  // names in lower case
  bool cdn = false;                            // to the second server
  std::string header(const std::string& name) const {
    const auto found = headers.find(name);
    return found == headers.end() ? "" : found->second;
  }
};

struct Reply {
  int status = 200;
  std::vector<std::string> headers;
  std::string body;
  size_t sent = std::string::npos;  // bytes of the body that leave before the connection is closed
  int delay_us = 0;                 // after each KiB
};

// One reply a connection, at most 64 connections at a time.
class Server {
 public:
  using Handler = std::function<Reply(const Request&)>;
  explicit Server(Handler handler) : handler_(std::move(handler)) {
    listener_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof address;
    ::bind(listener_, reinterpret_cast<sockaddr*>(&address), sizeof address);
    ::listen(listener_, 64);
    ::getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &length);
    port_ = ntohs(address.sin_port);
    accepting_ = std::jthread([this](const std::stop_token& stop) { accept_all(stop); });
  }
  ~Server() {
    accepting_.request_stop();
    accepting_.join();
    ::close(listener_);
  }
  std::string url() const { return fmt::format("http://127.0.0.1:{}", port_); }

 private:
  void accept_all(const std::stop_token& stop) {
    std::vector<std::jthread> connections;
    while (!stop.stop_requested()) {
      pollfd waiting{listener_, POLLIN, 0};
      if (::poll(&waiting, 1, 20) <= 0) continue;
      const int socket = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
      if (socket < 0) continue;
      if (connections.size() == 64) connections.clear();
      connections.emplace_back([this, socket, stop] {
        const timeval patience{60, 0};
        ::setsockopt(socket, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
        ::setsockopt(socket, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
        answer(socket, stop);
        ::close(socket);
      });
    }
  }
  void answer(int socket, const std::stop_token& stop) const {
    std::string text;
    char buffer[4096];
    while (text.find("\r\n\r\n") == text.npos) {
      const ssize_t got = ::recv(socket, buffer, sizeof buffer, 0);
      if (got <= 0) return;
      text.append(buffer, static_cast<size_t>(got));
    }
    const Reply reply = handler_(parse(text));
    std::string head = fmt::format("HTTP/1.1 {} X\r\nConnection: close\r\n", reply.status);
    for (const std::string& header : reply.headers) head += header + "\r\n";
    const auto has_length = [](const std::string& h) { return h.starts_with("Content-Length"); };
    if (std::ranges::none_of(reply.headers, has_length)) {
      head += fmt::format("Content-Length: {}\r\n", reply.body.size());
    }
    send(socket, head + "\r\n");
    const std::string_view body = std::string_view(reply.body).substr(0, reply.sent);
    for (size_t at = 0; at < body.size() && !stop.stop_requested(); at += 1024) {
      if (!send(socket, body.substr(at, 1024))) return;
      for (int left = reply.delay_us; left > 0 && !stop.stop_requested(); left -= 20000) {
        ::usleep(static_cast<useconds_t>(std::min(left, 20000)));
      }
    }
  }
  static bool send(int socket, std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t sent = ::send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (sent <= 0) return false;
      bytes.remove_prefix(static_cast<size_t>(sent));
    }
    return true;
  }
  static Request parse(const std::string& text) {
    Request request;
    const size_t space = text.find(' ');
    request.path = text.substr(space + 1, text.find(' ', space + 1) - space - 1);
    for (size_t at = text.find("\r\n") + 2; at < text.size();) {
      const size_t end = text.find("\r\n", at), colon = text.find(':', at);
      if (end == at || end == text.npos) break;
      std::string name = text.substr(at, colon - at);
      std::ranges::transform(name, name.begin(), [](unsigned char c) { return std::tolower(c); });
      request.headers[name] = text.substr(colon + 2, end - colon - 2);
      at = end + 2;
    }
    return request;
  }

  Handler handler_;
  int listener_ = -1, port_ = 0;
  std::jthread accepting_;
};

inline std::string sha256(const std::string& bytes) {
  Sha256 hash;
  hash.update(bytes);
  return hash.hex();
}

inline std::string git_sha1(const std::string& bytes) {
  Sha1 hash;
  hash.update(fmt::format("blob {}", bytes.size()) + '\0' + bytes);
  return hash.hex();
}

class Hub {
 public:
  std::string repo = "org/name";
  std::string commit = std::string(39, 'a') + "1";
  std::map<std::string, std::string> files;     // small: git's hash, sent by the Hub itself
  std::map<std::string, std::string> large;     // LFS: SHA-256, redirected to the second server
  std::function<void(nlohmann::json&)> listed;  // changes the listing
  // A reply instead of the usual one.
  std::function<std::optional<Reply>(const Request&, const Reply& usual)> fault;

  std::string url() const { return hub_.url(); }
  std::vector<Request> requests() const {
    const std::lock_guard lock(mutex_);
    return requests_;
  }

 private:
  Reply handle(Request request, bool cdn) {
    request.cdn = cdn;
    {
      const std::lock_guard lock(mutex_);
      requests_.push_back(request);
    }
    const Reply usual = cdn ? content(request, large) : reply_of_hub(request);
    if (fault) {
      if (std::optional<Reply> changed = fault(request, usual)) return *changed;
    }
    return usual;
  }
  Reply reply_of_hub(const Request& request) const {
    if (request.path.starts_with(fmt::format("/api/models/{}/revision/", repo))) return listing();
    const std::string prefix = fmt::format("/{}/resolve/{}/", repo, commit);
    if (!request.path.starts_with(prefix)) {
      return {404, {"X-Error-Code: RepoNotFound"}, "no", std::string::npos, 0};
    }
    const std::string name = request.path.substr(prefix.size());
    if (!large.contains(name)) return content({"/" + name, request.headers, false}, files);
    return {302, {fmt::format("Location: {}/{}", cdn_.url(), name)}, "", std::string::npos, 0};
  }
  Reply listing() const {
    nlohmann::json siblings = nlohmann::json::array();
    for (const auto& [name, bytes] : files) {
      siblings.push_back(
          {{"rfilename", name}, {"size", bytes.size()}, {"blobId", git_sha1(bytes)}});
    }
    for (const auto& [name, bytes] : large) {
      siblings.push_back(
          {{"rfilename", name},
           {"size", bytes.size()},
           {"blobId", std::string(40, 'b')},
           {"lfs", {{"sha256", sha256(bytes)}, {"size", bytes.size()}, {"pointerSize", 134}}}});
    }
    nlohmann::json json = {{"id", repo}, {"sha", commit}, {"siblings", siblings}};
    if (listed) listed(json);
    return {200, {"Content-Type: application/json"}, json.dump(), std::string::npos, 0};
  }
  static Reply content(const Request& request, const std::map<std::string, std::string>& all) {
    const auto found = all.find(request.path.substr(1));
    if (found == all.end()) {
      return {404, {"X-Error-Code: EntryNotFound"}, "", std::string::npos, 0};
    }
    const std::string& bytes = found->second;
    const std::string range = request.header("range");  // "bytes=5-"
    if (range.empty()) return {200, {}, bytes, std::string::npos, 0};
    const size_t from = std::stoul(range.substr(range.find('=') + 1));
    if (from >= bytes.size()) return {416, {}, "", std::string::npos, 0};
    const std::string span =
        fmt::format("Content-Range: bytes {}-{}/{}", from, bytes.size() - 1, bytes.size());
    return {206, {span}, bytes.substr(from), std::string::npos, 0};
  }

  mutable std::mutex mutex_;
  std::vector<Request> requests_;
  Server hub_{[this](const Request& request) { return handle(request, false); }};
  Server cdn_{[this](const Request& request) { return handle(request, true); }};
};

}  // namespace ridge::fake
