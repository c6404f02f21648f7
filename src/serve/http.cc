#include "serve/http.h"

#include <sys/resource.h>

#include <algorithm>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <list>
#include <set>
#include <vector>

#include "base/error.h"
#include "serve/http_connection.h"

namespace ridge {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;
using Clock = std::chrono::steady_clock;

constexpr int kBacklog = 1024;
constexpr std::chrono::milliseconds kTick{50};  // how often deadlines are checked

// So many connections above the limit are told 503; more are closed at once.
constexpr size_t kRefusedConnections = 256;

// Each connection takes a file descriptor; the usual soft limit is 1024.
void raise_file_limit(size_t wanted) {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= wanted) return;
  limit.rlim_cur = std::min<rlim_t>(wanted, limit.rlim_max);
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

}  // namespace

size_t default_body_bytes(std::string_view path) {
  return path.starts_with("/api/") ? 64 << 10 : 8 << 20;
}

struct HttpServer::Impl : HttpServerState {
  std::list<tcp::acceptor> acceptors;
  asio::steady_timer timer{io};  // ticks while there are connections
  bool ticking = false;
  Clock::time_point drained_by = Clock::time_point::max();

  bool listen(const tcp::endpoint& endpoint, error_code& failure) {
    tcp::acceptor acceptor(io);
    acceptor.open(endpoint.protocol(), failure);
    // Asio sets no SO_REUSEPORT, which would let two servers share the port.
    if (!failure) acceptor.set_option(tcp::acceptor::reuse_address(true), failure);
    if (!failure) acceptor.bind(endpoint, failure);
    if (!failure) acceptor.listen(kBacklog, failure);
    if (!failure) acceptors.push_back(std::move(acceptor));
    return !failure;
  }

  void accept(tcp::acceptor& acceptor) {
    acceptor.async_accept([this, &acceptor](const error_code& failure, tcp::socket socket) {
      if (!acceptor.is_open()) return;
      if (failure) return accept_later(acceptor);
      admit(std::move(socket));
      accept(acceptor);
    });
  }

  // No file descriptor is free, perhaps: there may be one soon.
  void accept_later(tcp::acceptor& acceptor) {
    auto pause = std::make_shared<asio::steady_timer>(io, kTick);
    pause->async_wait([this, &acceptor, pause](const error_code&) {
      if (acceptor.is_open()) accept(acceptor);
    });
  }

  void admit(tcp::socket socket) {
    if (connections.size() >= limits.connections + kRefusedConnections) return;
    const bool refused = connections.size() >= limits.connections;
    const auto connection = std::make_shared<HttpConnection>(*this, std::move(socket));
    connections.insert(connection);
    connection->start(refused);
    if (!ticking) tick();
  }

  void tick() {
    const Clock::time_point now = Clock::now();
    if (now >= drained_by) return close_all();
    for (const auto& connection : std::vector(connections.begin(), connections.end())) {
      connection->check_deadline(now);
    }
    ticking = !connections.empty();
    if (!ticking) return;
    timer.expires_after(kTick);
    timer.async_wait([this](const error_code& cancelled) {
      if (!cancelled) tick();
    });
  }

  void close_acceptors() {
    error_code ignored;
    for (tcp::acceptor& acceptor : acceptors) acceptor.close(ignored);
  }

  void close_all() {
    close_acceptors();
    timer.cancel();
    for (const auto& connection : std::vector(connections.begin(), connections.end())) {
      connection->close();
    }
  }

  void drain_until(Clock::time_point limit) {
    draining = true;
    drained_by = limit;
    close_acceptors();
    for (const auto& connection : std::vector(connections.begin(), connections.end())) {
      connection->close_if_idle();
    }
  }
};

HttpServer::HttpServer(HttpHandler handler, const HttpLimits& limits,
                       std::function<bool(const HttpRequest&)> is_quick)
    : impl_(std::make_unique<Impl>()) {
  impl_->handler = std::move(handler);
  impl_->is_quick = std::move(is_quick);
  impl_->limits = limits;
}

HttpServer::~HttpServer() = default;

int HttpServer::bind(const std::string& host, int port) {
  raise_file_limit(impl_->limits.connections + 512);
  const bool bracketed = host.starts_with('[') && host.ends_with(']');
  error_code failure;
  tcp::resolver resolver(impl_->io);
  const auto found =
      resolver.resolve(bracketed ? host.substr(1, host.size() - 2) : host, std::to_string(port),
                       tcp::resolver::passive | tcp::resolver::numeric_service, failure);
  std::set<tcp::endpoint> endpoints;
  for (const auto& entry : found) endpoints.insert(entry.endpoint());
  int bound = port;
  for (tcp::endpoint endpoint : endpoints) {
    endpoint.port(static_cast<uint16_t>(bound));
    if (impl_->listen(endpoint, failure)) {
      bound = impl_->acceptors.back().local_endpoint().port();
    } else if (failure == asio::error::address_in_use && port != 0) {
      impl_->acceptors.clear();
      break;
    }
  }
  if (impl_->acceptors.empty()) {
    throw Error("cannot listen on {}:{}: taken, or not an address of this machine (try --port {})",
                host, port, port == 8080 ? 8081 : 8080);
  }
  return bound;
}

void HttpServer::run() {
  impl_->workers.emplace(impl_->limits.threads);
  for (tcp::acceptor& acceptor : impl_->acceptors) impl_->accept(acceptor);
  impl_->io.run();  // until every socket is closed
  // Handlers that have not begun are dropped, with their clients gone.
  impl_->workers->stop();
  impl_->workers->join();
  impl_->workers.reset();
}

void HttpServer::stop() {
  asio::post(impl_->io, [this] { impl_->close_all(); });
}

void HttpServer::drain(std::chrono::milliseconds limit) {
  asio::post(impl_->io, [this, until = Clock::now() + limit] { impl_->drain_until(until); });
}

}  // namespace ridge
