// A server on a free loopback port for as long as a test runs.
#pragma once

#include <thread>

#include "base/json.h"
#include "http/patient_limits.h"
#include "http/sockets.h"
#include "page/server.h"

namespace ridge {

class TestServer {
 public:
  explicit TestServer(const AccessRules& rules = {}, const HttpLimits& limits = patient_limits())
      : server_(page_handler(rules), page_limits(rules, limits)),
        port_(server_.bind("127.0.0.1", 0)),
        thread_([this] { server_.run(); }) {}
  ~TestServer() {
    server_.stop();
    thread_.join();
  }
  int port() const { return port_; }

 private:
  HttpServer server_;
  int port_;
  std::thread thread_;
};

}  // namespace ridge
