#include "load/http_client.h"

#include <fmt/format.h>

// clang-format off
#include <utility>  // before Asio: that of Boost 1.74 uses std::exchange without including it
// clang-format on

#include <boost/asio.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http.hpp>
#include <charconv>
#include <chrono>
#include <limits>
#include <optional>
#include <set>
#include <vector>

#include "base/error.h"

namespace ridge {
namespace {

namespace asio = boost::asio;
namespace http = boost::beast::http;
using asio::ip::tcp;
using boost::system::error_code;
using Clock = std::chrono::steady_clock;

constexpr size_t kReadBytes = 32 << 10;
constexpr size_t kMaxAnswerBytes = 16 << 20;  // of ask()
constexpr double kConnectWait = 5;            // s, for each address of the host

Clock::duration to_duration(double seconds) {
  return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}

}  // namespace

std::string HttpTarget::authority() const {
  const bool ipv6 = host.find(':') != std::string::npos;
  return fmt::format("{}:{}", ipv6 ? "[" + host + "]" : host, port);
}
std::string HttpTarget::url() const { return "http://" + authority() + path; }

HttpTarget parse_http_target(std::string_view url) {
  const auto bad = [&](const char* why) {
    return Error("{}: {}; an address looks like http://127.0.0.1:8080", url, why);
  };
  std::string_view rest = url;
  if (const size_t scheme = rest.find("://"); scheme != std::string_view::npos) {
    if (rest.substr(0, scheme) == "https") throw bad("only plain HTTP is spoken, not TLS");
    if (rest.substr(0, scheme) != "http") throw bad("not an HTTP address");
    rest.remove_prefix(scheme + 3);
  }
  HttpTarget target;
  const size_t slash = std::min(rest.find('/'), rest.size());
  target.path = rest.substr(slash);
  while (target.path.ends_with('/')) target.path.pop_back();
  std::string_view authority = rest.substr(0, slash);
  for (const unsigned char c : url) {
    if (c <= ' ' || c >= 127 || c == '?' || c == '#')
      throw bad("a character that has no place here");
  }
  if (authority.find('@') != std::string_view::npos) throw bad("no user names");
  std::string_view port;
  if (authority.starts_with('[')) {  // [::1]:8080
    const size_t close = authority.find(']');
    if (close == std::string_view::npos) throw bad("a bracket is not closed");
    target.host = authority.substr(1, close - 1);
    port = authority.substr(close + 1);
  } else {
    const size_t colon = std::min(authority.find(':'), authority.size());
    target.host = authority.substr(0, colon);
    port = authority.substr(colon);
  }
  if (target.host.empty()) throw bad("no host");
  if (!port.empty()) {
    const char* end = port.data() + port.size();
    const auto [read, error] = std::from_chars(port.data() + 1, end, target.port);
    if (port[0] != ':' || error != std::errc() || read != end || target.port == 0) {
      throw bad("the port must be from 1 to 65535");
    }
  }
  return target;
}

struct HttpClient::Impl {
  using Parser = http::response_parser<http::string_body>;

  struct Connection {
    explicit Connection(asio::io_context& context) : socket(context) {}
    tcp::socket socket;
    boost::beast::flat_buffer buffer;
    std::optional<Parser> parser;
    std::string request;
    HttpReceiver* receiver = nullptr;
    double deadline = 0;
    bool used_before = false;  // a server may have closed it meanwhile
    bool status_known = false;
    std::optional<HttpEnd> ended_by_us;
  };
  using Handle = std::shared_ptr<Connection>;

  HttpTarget target;
  Options options;
  asio::io_context context{1};
  tcp::endpoint endpoint;
  Clock::time_point start = Clock::now();
  std::set<Handle> open;
  std::vector<Handle> idle;
  std::set<std::shared_ptr<asio::steady_timer>> timers;
  asio::steady_timer watch{context};  // ends requests that are past their deadline
  bool watching = false;

  double now() const { return std::chrono::duration<double>(Clock::now() - start).count(); }

  void find_endpoint() {
    error_code error;
    const auto found =
        tcp::resolver(context).resolve(target.host, std::to_string(target.port), error);
    if (error) throw Error("{}: no such host: {}", target.host, error.message());
    for (const auto& entry : found) {
      const auto address = entry.endpoint().address();
      if (!options.allow_remote && !address.is_loopback()) {
        throw Error(
            "{} is not this machine, and load on another's server needs its owner's consent: "
            "--allow-remote says that you have it",
            address.to_string());
      }
      tcp::socket probe(context);
      error = asio::error::timed_out;
      probe.async_connect(entry.endpoint(), [&error](error_code result) { error = result; });
      context.run_for(to_duration(kConnectWait));
      probe.close();
      context.restart();
      context.run();  // the handler of a connection that was given up
      context.restart();
      if (error == asio::error::operation_aborted) error = asio::error::timed_out;
      if (error) continue;
      endpoint = entry.endpoint();
      return;
    }
    throw Error("nothing listens on {}: {}", target.url(), error.message());
  }

  void send(std::string_view path, std::string_view body, HttpReceiver& receiver) {
    Handle c;
    if (idle.empty()) {
      c = std::make_shared<Connection>(context);
    } else {
      c = std::move(idle.back());
      idle.pop_back();
      c->used_before = true;
    }
    c->receiver = &receiver;
    c->deadline = now() + options.timeout_s;
    c->ended_by_us.reset();
    c->request = fmt::format("{} {}{} HTTP/1.1\r\nHost: {}\r\nUser-Agent: ridge-load\r\n",
                             body.empty() ? "GET" : "POST", target.path, path, target.authority());
    if (!options.api_key.empty()) {
      c->request += fmt::format("Authorization: Bearer {}\r\n", options.api_key);
    }
    if (!body.empty()) {
      c->request +=
          fmt::format("Content-Type: application/json\r\nContent-Length: {}\r\n", body.size());
    }
    c->request += "\r\n";
    c->request += body;
    open.insert(c);
    watch_deadlines();
    begin(c);
  }

  void begin(const Handle& c) {
    c->status_known = false;
    c->parser.emplace();
    // None. (Boost 1.74 takes boost::none for a limit of no bytes.)
    c->parser->body_limit(std::numeric_limits<uint64_t>::max());
    c->parser->eager(true);  // parses all that has arrived
    c->buffer.clear();
    if (c->used_before) {
      write(c);
      return;
    }
    c->socket.async_connect(endpoint, [this, c](error_code error) {
      if (error) return end(c, HttpEnd::no_connection);
      c->socket.set_option(tcp::no_delay(true), error);
      write(c);
    });
  }

  void write(const Handle& c) {
    asio::async_write(c->socket, asio::buffer(c->request), [this, c](error_code error, size_t) {
      if (error) return failed(c, error);
      read(c);
    });
  }

  // Beast's own async_read_some() hands a chunk over only when the next one has begun. Here the
  // parser gets every byte when it arrives.
  void read(const Handle& c) {
    c->socket.async_read_some(c->buffer.prepare(kReadBytes),
                              [this, c](error_code error, size_t bytes) { take(c, error, bytes); });
  }

  void take(const Handle& c, error_code error, size_t bytes) {
    c->buffer.commit(bytes);
    if (error == asio::error::eof && c->parser->got_some()) {
      error = {};
      c->parser->put_eof(error);
    }
    while (!error && !c->parser->is_done() && c->buffer.size() > 0) {
      c->buffer.consume(c->parser->put(c->buffer.data(), error));
    }
    if (error == http::error::need_more) error = {};
    deliver(*c);
    if (error) return failed(c, error);
    if (!c->parser->is_done()) return read(c);
    finish(c, HttpEnd::complete, c->parser->keep_alive() && !c->ended_by_us);
  }

  void deliver(Connection& c) {
    if (!c.parser->is_header_done()) return;
    if (!c.status_known) {
      c.status_known = true;
      c.receiver->on_status(static_cast<int>(c.parser->get().result_int()));
    }
    std::string& body = c.parser->get().body();
    if (body.empty()) return;
    c.receiver->on_body(body);
    body.clear();
  }

  void failed(const Handle& c, const error_code& error) {
    // A server may close a connection between two requests; the request has not been seen then.
    if (c->used_before && !c->parser->got_some() && !c->ended_by_us) {
      c->used_before = false;
      c->socket = tcp::socket(context);
      return begin(c);
    }
    const bool bad_http = error.category() == make_error_code(http::error::bad_version).category();
    const bool ended = error == http::error::end_of_stream || error == http::error::partial_message;
    end(c, bad_http && !ended ? HttpEnd::malformed : HttpEnd::cut);
  }
  void end(const Handle& c, HttpEnd how) { finish(c, c->ended_by_us.value_or(how), false); }

  void finish(const Handle& c, HttpEnd how, bool keep) {
    open.erase(c);
    if (keep) {
      idle.push_back(c);
    } else {
      error_code ignored;
      c->socket.close(ignored);
    }
    if (open.empty()) watch.cancel();  // run() need not wait for it
    c->receiver->on_end(how);
  }

  void stop(Connection& c, HttpEnd how) {
    c.ended_by_us = how;
    error_code ignored;
    c.socket.close(ignored);  // its handler runs with an error
  }

  // One timer for all requests: a timer each would cost as much as the reads.
  void watch_deadlines() {
    if (watching) return;
    watching = true;
    watch.expires_after(std::chrono::milliseconds(50));
    watch.async_wait([this](error_code) {
      watching = false;
      if (open.empty()) return;
      const double time = now();
      for (const Handle& c : open) {
        if (c->deadline <= time) stop(*c, HttpEnd::timeout);
      }
      watch_deadlines();
    });
  }
};

HttpClient::HttpClient(HttpTarget target, Options options) : impl_(std::make_unique<Impl>()) {
  impl_->target = std::move(target);
  impl_->options = std::move(options);
  for (const unsigned char c : impl_->options.api_key) {
    if (c <= ' ' || c >= 127) throw OptionError("api-key", "--api-key: no blanks or line ends");
  }
  impl_->find_endpoint();
}
HttpClient::~HttpClient() = default;

const HttpTarget& HttpClient::target() const { return impl_->target; }
double HttpClient::now() const { return impl_->now(); }

void HttpClient::send(std::string_view path, std::string_view body, HttpReceiver& receiver) {
  impl_->send(path, body, receiver);
}

void HttpClient::at(double seconds, std::function<void()> call) {
  auto timer = std::make_shared<asio::steady_timer>(impl_->context);
  impl_->timers.insert(timer);
  timer->expires_at(impl_->start + to_duration(seconds));
  timer->async_wait([impl = impl_.get(), timer, call = std::move(call)](error_code error) {
    impl->timers.erase(timer);
    if (!error) call();
  });
}

void HttpClient::cancel_all() {
  for (const auto& timer : impl_->timers) timer->cancel();
  for (const Impl::Handle& c : impl_->open) impl_->stop(*c, HttpEnd::cancelled);
}

void HttpClient::run() {
  impl_->context.restart();
  impl_->context.run();
}

HttpClient::Answer HttpClient::ask(std::string_view path, std::string_view body) {
  struct Collector : HttpReceiver {
    Answer answer;
    void on_status(int status) override { answer.status = status; }
    void on_body(std::string_view bytes) override {
      if (answer.body.size() < kMaxAnswerBytes) answer.body += bytes;
    }
    void on_end(HttpEnd end) override {
      if (end != HttpEnd::complete) answer = {};
    }
  } collector;
  impl_->send(path, body, collector);
  run();
  return std::move(collector.answer);
}

}  // namespace ridge
