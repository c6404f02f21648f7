// An HTTP/1.1 client for thousands of requests at once, all on the thread that calls run(): no
// locks. Connections are kept open and used again.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

namespace ridge {

struct HttpTarget {
  std::string host;  // a name or an address, IPv6 without brackets
  uint16_t port = 80;
  std::string path;  // before every path; no slash at its end

  std::string authority() const;  // "127.0.0.1:8080", "[::1]:8080"
  std::string url() const;
};
// "http://127.0.0.1:8080/v1", "localhost:8080". Throws Error for anything but plain HTTP.
HttpTarget parse_http_target(std::string_view url);

enum class HttpEnd : uint8_t { complete, no_connection, cut, timeout, malformed, cancelled };

// What becomes of one request. Called on the thread of run(): on_status, on_body any number of
// times, on_end exactly once and last.
class HttpReceiver {
 public:
  virtual ~HttpReceiver() = default;
  virtual void on_status(int status) = 0;
  virtual void on_body(std::string_view bytes) = 0;
  virtual void on_end(HttpEnd end) = 0;  // may send() further requests
};

class HttpClient {
 public:
  struct Options {
    bool allow_remote = false;  // addresses that are not loopback
    double timeout_s = 300;     // from send() to the end of the answer
    std::string api_key;        // sent as a bearer token; empty: none
  };
  // Resolves the name and finds an address that accepts connections. Throws Error where there is
  // none, or where it is not loopback and that is not allowed.
  HttpClient(HttpTarget target, Options options);
  ~HttpClient();

  const HttpTarget& target() const;
  double now() const;  // seconds since the construction

  // A POST of JSON, or a GET where the body is empty. `receiver` must live until its on_end.
  void send(std::string_view path, std::string_view body, HttpReceiver& receiver);
  void at(double seconds, std::function<void()> call);  // on the clock of now()
  void cancel_all();  // ends every open request and drops the calls of at()
  void run();         // until no request is open and no call of at() is due

  struct Answer {
    int status = 0;  // 0: none came
    std::string body;
  };
  Answer ask(std::string_view path, std::string_view body = {});  // runs until its answer is there

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace ridge
