// An OpenAI-compatible endpoint without a model: a thread for each connection, on a free loopback
// port, for as long as a test runs.
#pragma once

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <functional>
#include <list>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <thread>

namespace ridge {

class FakeServer {
 public:
  struct Request {
    std::string path, head, body;
    int connection = 0;     // the number of its connection
    int of_connection = 0;  // how many requests this connection had before
    nlohmann::json json() const { return nlohmann::json::parse(body); }
  };
  // Answers on the connection; all sends and closings are its own. False closes the connection.
  class Connection {
   public:
    explicit Connection(int socket) : socket_(socket) {}
    bool send(std::string_view bytes) const {
      while (!bytes.empty()) {
        const ssize_t sent = ::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
        if (sent <= 0) return false;
        bytes.remove_prefix(static_cast<size_t>(sent));
      }
      return true;
    }
    bool reply(int status, std::string_view body) const {
      return send(
          fmt::format("HTTP/1.1 {} X\r\nContent-Length: {}\r\n\r\n{}", status, body.size(), body));
    }
    bool begin_stream() const {
      return send(
          "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
          "Transfer-Encoding: chunked\r\n\r\n");
    }
    bool event(std::string_view data) const { return chunk(fmt::format("data: {}\n\n", data)); }
    bool chunk(std::string_view bytes) const {
      return send(fmt::format("{:x}\r\n{}\r\n", bytes.size(), bytes));
    }
    bool end_stream() const { return event("[DONE]") && send("0\r\n\r\n"); }

   private:
    int socket_;
  };
  using Handler = std::function<bool(const Request&, const Connection&)>;

  explicit FakeServer(Handler handler) : handler_(std::move(handler)) {
    listener_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    if (bind(listener_, reinterpret_cast<sockaddr*>(&address), size) != 0 ||
        listen(listener_, 4096) != 0 ||
        getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size) != 0) {
      throw std::runtime_error("no loopback port");
    }
    port_ = ntohs(address.sin_port);
    acceptor_ = std::thread([this] { accept_all(); });
  }
  ~FakeServer() {
    stopping_ = true;
    shutdown(listener_, SHUT_RDWR);
    acceptor_.join();
    {
      const std::lock_guard lock(mutex_);
      for (const int open : sockets_) shutdown(open, SHUT_RDWR);
    }
    for (std::thread& thread : threads_) thread.join();
    close(listener_);
  }
  int port() const { return port_; }
  std::string url() const { return fmt::format("http://127.0.0.1:{}", port_); }
  int connections() const { return connections_; }

 private:
  void accept_all() {
    while (!stopping_) {
      const int accepted = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
      if (accepted < 0) continue;
      const int on = 1;
      setsockopt(accepted, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
      const std::lock_guard lock(mutex_);
      sockets_.push_back(accepted);
      threads_.emplace_back([this, accepted, number = connections_++] { serve(accepted, number); });
    }
  }

  void serve(int accepted, int number) {
    std::string bytes;
    for (int count = 0; !stopping_; ++count) {
      Request request;
      if (!read_request(accepted, bytes, request)) break;
      request.connection = number;
      request.of_connection = count;
      if (!handler_(request, Connection(accepted))) break;
    }
    const std::lock_guard lock(mutex_);
    sockets_.remove(accepted);
    close(accepted);
  }

  static bool read_request(int from, std::string& bytes, Request& request) {
    size_t head = 0, length = 0;
    while (true) {
      head = bytes.find("\r\n\r\n");
      if (head != std::string::npos) {
        const size_t field = bytes.find("Content-Length: ");
        length = field < head ? std::stoul(bytes.substr(field + 16)) : 0;
        if (bytes.size() >= head + 4 + length) break;
      }
      char buffer[65536];
      const ssize_t got = recv(from, buffer, sizeof(buffer), 0);
      if (got <= 0) return false;
      bytes.append(buffer, static_cast<size_t>(got));
    }
    const size_t space = bytes.find(' ');
    request.path = bytes.substr(space + 1, bytes.find(' ', space + 1) - space - 1);
    request.head = bytes.substr(0, head);
    request.body = bytes.substr(head + 4, length);
    bytes.erase(0, head + 4 + length);
    return true;
  }

  Handler handler_;
  int listener_ = -1, port_ = 0;
  std::atomic<bool> stopping_ = false;
  std::atomic<int> connections_ = 0;
  std::mutex mutex_;
  std::list<int> sockets_;
  std::list<std::thread> threads_;
  std::thread acceptor_;
};

// What an endpoint answers before the load: one model, "fake". True where it answered.
inline bool answer_probe(const FakeServer::Request& request,
                         const FakeServer::Connection& connection, bool tokenizes = true) {
  if (request.path == "/v1/models") {
    return connection.reply(200, R"({"data":[{"id":"fake","max_model_len":4096}]})");
  }
  if (request.path == "/tokenize" && tokenizes) {
    std::string ids;
    for (int id = 100; id < 200; ++id) ids += fmt::format("{}{}", id == 100 ? "" : ",", id);
    return connection.reply(200, fmt::format(R"({{"count":100,"tokens":[{}]}})", ids));
  }
  if (request.path == "/tokenize" || request.path == "/metrics" || request.path == "/health") {
    return connection.reply(404, R"({"error":{"message":"no such path"}})");
  }
  return false;
}

// Streams max_tokens tokens, one a chunk, `gap_ms` apart, and the usage.
inline bool answer_completion(const FakeServer::Request& request,
                              const FakeServer::Connection& connection, int gap_ms = 0) {
  const nlohmann::json body = request.json();
  const int tokens = body["max_tokens"].get<int>();
  const size_t prompt = body.contains("prompt") ? body["prompt"].size() : 0;
  if (!connection.begin_stream()) return false;
  for (int i = 0; i < tokens; ++i) {
    if (gap_ms > 0) std::this_thread::sleep_for(std::chrono::milliseconds(gap_ms));
    if (!connection.event(fmt::format(
            R"({{"id":"c","object":"text_completion","choices":[{{"index":0,"text":" t{0}",)"
            R"("delta":{{"content":" t{0}"}},"finish_reason":null}}],"usage":null}})",
            i))) {
      return false;
    }
  }
  return connection.event(
             R"({"choices":[{"index":0,"text":"","delta":{},"finish_reason":"length"}]})") &&
         connection.event(
             fmt::format(R"({{"choices":[],"usage":{{"prompt_tokens":{},"completion_tokens":{},)"
                         R"("prompt_tokens_details":{{"cached_tokens":3}}}}}})",
                         prompt, tokens)) &&
         connection.end_stream();
}

}  // namespace ridge
