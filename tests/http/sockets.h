// Raw sockets that speak HTTP to a server under test.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <cerrno>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "base/wait_until.h"

namespace ridge {

class Connection {
 public:
  // `receive_bytes`: the size of the receive buffer; 0: the system's choice.
  explicit Connection(int port, int receive_bytes = 0)
      : socket_(::socket(AF_INET, SOCK_STREAM, 0)) {
    if (receive_bytes > 0) {
      ::setsockopt(socket_, SOL_SOCKET, SO_RCVBUF, &receive_bytes, sizeof receive_bytes);
    }
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    const timeval patience{kPatience.count(), 0};
    ::setsockopt(socket_, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    connected_ = ::connect(socket_, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
  }
  ~Connection() { ::close(socket_); }
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  bool connected() const { return connected_; }
  bool send(std::string_view text) {
    while (!text.empty()) {
      const ssize_t sent = ::send(socket_, text.data(), text.size(), MSG_NOSIGNAL);
      if (sent <= 0) return false;
      text.remove_prefix(static_cast<size_t>(sent));
    }
    return true;
  }
  // Each send() leaves in a packet of its own.
  void send_at_once() {
    const int yes = 1;
    ::setsockopt(socket_, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
  }
  void end_sending() { ::shutdown(socket_, SHUT_WR); }
  void end() { ::shutdown(socket_, SHUT_RDWR); }  // a read on another thread returns
  // The next close sends a reset, as that of a killed process with unread bytes does.
  void reset_on_close() {
    const linger at_once{1, 0};
    ::setsockopt(socket_, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
  }
  // Reads until `text` has come, the peer closes, or kPatience has passed without a byte.
  std::string receive_until(std::string_view text) {
    std::string got;
    char byte = 0;
    while (!got.ends_with(text) && ::recv(socket_, &byte, 1, 0) > 0) got += byte;
    return got;
  }
  // At most `most` bytes; none where the peer has closed.
  std::string receive_some(size_t most) {
    std::string text(most, '\0');
    const ssize_t got = ::recv(socket_, text.data(), most, 0);
    text.resize(got > 0 ? static_cast<size_t>(got) : 0);
    return text;
  }
  // Takes what has come.
  void receive_now() {
    char piece[4096];
    while (::recv(socket_, piece, sizeof piece, MSG_DONTWAIT) > 0) {
    }
  }
  // Whether the peer has closed by now; takes nothing of what has come.
  bool is_closed_now() {
    char byte = 0;
    const ssize_t got = ::recv(socket_, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    return got == 0 || (got < 0 && errno == ECONNRESET);
  }
  bool has_answer_now() {
    char byte = 0;
    return ::recv(socket_, &byte, 1, MSG_PEEK | MSG_DONTWAIT) > 0;
  }
  std::string receive_all() {
    std::string text;
    char piece[65536];
    ssize_t got = 0;
    while ((got = ::recv(socket_, piece, sizeof piece, 0)) > 0) {
      text.append(piece, static_cast<size_t>(got));
    }
    return text;
  }
  // Reads what is left and says whether the peer closed the connection; false after kPatience.
  bool is_closed_by_peer() {
    char piece[4096];
    ssize_t got = 0;
    while ((got = ::recv(socket_, piece, sizeof piece, 0)) > 0) {
    }
    return got == 0 || errno == ECONNRESET;
  }
  // One answer: head and as much body as its Content-Length says; less where the peer closed.
  std::string receive() {
    std::string text;
    char piece[65536];
    for (;;) {
      const size_t end = text.find("\r\n\r\n");
      if (end != std::string::npos) {
        const size_t at = text.find("Content-Length: ");
        const size_t length = at < end ? std::stoul(text.substr(at + 16)) : 0;
        if (text.size() >= end + 4 + length) return text;
      }
      const ssize_t got = ::recv(socket_, piece, sizeof piece, 0);
      if (got <= 0) return text;
      text.append(piece, static_cast<size_t>(got));
    }
  }

 private:
  int socket_;
  bool connected_ = false;
};

struct Answer {
  int status = 0;
  std::string head, body;

  nlohmann::json json() const { return nlohmann::json::parse(body); }
};

inline Answer parse_answer(const std::string& text) {
  Answer answer;
  const size_t end = text.find("\r\n\r\n");
  if (end == std::string::npos) return answer;
  answer.head = text.substr(0, end);
  answer.body = text.substr(end + 4);
  answer.status = std::stoi(text.substr(9, 3));
  return answer;
}

// The body of a chunked answer; nothing if it is not whole.
inline std::optional<std::string> dechunked(std::string_view text) {
  std::string body;
  for (;;) {
    const size_t end = text.find("\r\n");
    if (end == std::string_view::npos) return std::nullopt;
    const size_t size = std::stoul(std::string(text.substr(0, end)), nullptr, 16);
    if (text.size() < end + 2 + size + 2) return std::nullopt;
    if (size == 0) return body;
    body += text.substr(end + 2, size);
    text.remove_prefix(end + 2 + size + 2);
  }
}

inline Answer fetch(int port, const std::string& target, const std::string& headers = "",
                    const std::string& method = "GET", const std::string& body = "") {
  Connection connection(port);
  std::string text =
      method + " " + target + " HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n" + headers;
  if (!body.empty()) text += "Content-Length: " + std::to_string(body.size()) + "\r\n";
  connection.send(text + "\r\n" + body);
  return parse_answer(connection.receive());
}

inline Answer post(int port, const std::string& target, const std::string& body) {
  return fetch(port, target, "Content-Type: application/json\r\n", "POST", body);
}

inline std::string request_text(const std::string& path, const std::string& body) {
  return "POST " + path +
         " HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\n"
         "Content-Length: " +
         std::to_string(body.size()) + "\r\n\r\n" + body;
}

}  // namespace ridge
