// Requests to the Hub: which failures are worth another attempt, and what a refusal means.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "hub/http_get.h"

namespace ridge {

struct HubRequest {
  HttpGet get;
  double backoff_s = 1;    // wait before the second attempt; each further one doubles it
  bool connected = false;  // the server was reached before: a failed connection is temporary
  std::function<uint64_t()> from;  // first byte wanted by the next attempt; unset: 0
};

// Up to 5 attempts: 5xx, 408, 429 and broken connections are repeated after a wait, of Retry-After
// where the server says so, at most a minute. An attempt that brought 1 MiB starts the count again.
CurlReply get_with_retries(CurlClient& client, HubRequest request,
                           const CurlClient::Receive& receive);

// One line that says why `what` (a repository, or a file of it) did not come: missing, gated, no
// such revision, rate limit, no connection.
std::string failure_line(const CurlReply& reply, const HttpGet& get, const std::string& repo,
                         const std::string& what);

}  // namespace ridge
