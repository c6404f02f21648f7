#include "http/http.h"

#include <sys/resource.h>

#include <algorithm>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <list>
#include <optional>
#include <set>
#include <vector>

#include "base/error.h"
#include "base/free_memory.h"
#include "http/http_connection.h"

namespace ridge {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;
using Clock = std::chrono::steady_clock;

constexpr int kBacklog = 1024;
constexpr std::chrono::milliseconds kTick{50};  // how often deadlines are checked

// Each connection takes a file descriptor; the usual soft limit is 1024. What the process opens
// besides them are a few files of the model and of the system.
constexpr size_t kOtherFiles = 64, kFewestOtherFiles = 16;

void fit_to_file_limit(HttpLimits& limits) {
  const size_t wanted = limits.connections + limits.reserved_connections + kOtherFiles;
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= wanted) return;
  limit.rlim_cur = std::min<rlim_t>(wanted, limit.rlim_max);
  ::setrlimit(RLIMIT_NOFILE, &limit);
  if (limit.rlim_cur >= wanted) return;
  const size_t files = limit.rlim_cur;
  const size_t others = std::max(std::min(kOtherFiles, files / 2), kFewestOtherFiles);
  const size_t places = files > others ? files - others : 2;
  limits.reserved_connections = std::min(limits.reserved_connections, places / 4 + 1);
  limits.connections = places - limits.reserved_connections;
}

// A client by its address; of IPv6 by the network of 64 bits that one site has at least.
asio::ip::address client_of(const tcp::socket& socket) {
  error_code ignored;
  asio::ip::address address = socket.remote_endpoint(ignored).address();
  if (!address.is_v6()) return address;
  auto bytes = address.to_v6().to_bytes();
  if (address.to_v6().is_v4_mapped()) return address;
  std::fill(bytes.begin() + 8, bytes.end(), 0);
  return asio::ip::address_v6(bytes);
}

// Whether `group` has a place for another connection, after the first that reads has given it where
// it must.
bool make_room(HttpConnectionGroup& group, size_t most) {
  while (group.open >= most) {
    if (group.reading.empty()) return false;
    group.reading.front()->give_place();
  }
  return true;
}

}  // namespace

HttpBodyRule default_body_rule(const HttpRequest& request) {
  return {.bytes = size_t{request.path.starts_with("/api/") ? 64u << 10 : 8u << 20}};
}

struct HttpServer::Impl : HttpServerState {
  std::list<tcp::acceptor> acceptors;
  asio::steady_timer timer{io};  // ticks while there are connections
  bool ticking = false;
  Clock::time_point drained_by = Clock::time_point::max();
  size_t most_connections = 0;  // since memory went back
  std::optional<Clock::time_point> crowd_left;

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
    const asio::ip::address address = client_of(socket);
    std::optional<asio::ip::address> client;
    if (make_room(clients[address], limits.connections_per_client) &&
        make_room(all, limits.connections)) {
      client = address;
    } else if (!make_room(reserved, limits.reserved_connections)) {
      return;
    }
    const auto connection = std::make_shared<HttpConnection>(*this, std::move(socket), client);
    connections.insert(connection);
    connection->start();
    if (!ticking) tick();
  }

  void tick() {
    const Clock::time_point now = Clock::now();
    if (now >= drained_by) return close_all();
    for (const auto& connection : std::vector(connections.begin(), connections.end())) {
      connection->check_deadline(now);
    }
    std::erase_if(clients, [](const auto& client) { return client.second.open == 0; });
    return_memory_of_crowd(now);
    ticking = !connections.empty() || crowd_left;
    if (!ticking) return;
    timer.expires_after(kTick);
    timer.async_wait([this](const error_code& cancelled) {
      if (!cancelled) tick();
    });
  }

  // What a crowd's requests and answers were made of lies in pieces that the allocator keeps. A
  // second after most have left the engine has freed its part, too.
  void return_memory_of_crowd(Clock::time_point now) {
    constexpr size_t kCrowd = 256;
    most_connections = std::max(most_connections, connections.size());
    if (draining || most_connections < kCrowd || connections.size() > most_connections / 4) {
      crowd_left.reset();
    } else if (!crowd_left) {
      crowd_left = now;
    } else if (now - *crowd_left > std::chrono::seconds(1)) {
      return_free_memory();
      most_connections = connections.size();
      crowd_left.reset();
    }
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

HttpServer::HttpServer(HttpHandler handler, const HttpLimits& limits)
    : impl_(std::make_unique<Impl>()) {
  impl_->handler = std::move(handler);
  impl_->limits = limits;
  impl_->bodies = std::make_shared<BodyBudget>(limits.all_body_bytes);
}

HttpServer::~HttpServer() = default;

int HttpServer::bind(const std::string& host, int port) {
  fit_to_file_limit(impl_->limits);
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
  for (const HttpLane& lane : impl_->limits.lanes) impl_->lanes.emplace_back(lane);
  for (tcp::acceptor& acceptor : impl_->acceptors) impl_->accept(acceptor);
  impl_->io.run();  // until every socket is closed
  // Handlers that have not begun are dropped, with their clients gone.
  impl_->lanes.clear();
}

void HttpServer::stop() {
  asio::post(impl_->io, [this] { impl_->close_all(); });
}

void HttpServer::drain(std::chrono::milliseconds limit) {
  asio::post(impl_->io, [this, until = Clock::now() + limit] { impl_->drain_until(until); });
}

}  // namespace ridge
