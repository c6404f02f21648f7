#include "hub/hub_request.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <thread>

namespace ridge {
namespace {

constexpr int kAttempts = 5;
constexpr double kLongestWait_s = 60;
constexpr uint64_t kProgressBytes = 1 << 20;

bool is_temporary(const CurlReply& reply, bool connected) {
  if (reply.failure == HttpFailure::cut) return true;
  if (reply.failure == HttpFailure::unreachable) return connected;
  return reply.failure == HttpFailure::none &&
         (reply.status >= 500 || reply.status == 408 || reply.status == 429);
}

// False: cancelled.
bool wait_for(double seconds, const std::function<bool()>& cancelled) {
  using Clock = std::chrono::steady_clock;
  const auto end = Clock::now() + std::chrono::duration<double>(seconds);
  while (Clock::now() < end) {
    if (cancelled && cancelled()) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  return true;
}

}  // namespace

CurlReply get_with_retries(CurlClient& client, HubRequest request,
                           const CurlClient::Receive& receive) {
  double wait_s = request.backoff_s;
  for (int attempt = 1;; ++attempt) {
    if (request.from) request.get.from = request.from();
    CurlReply reply = client.get(request.get, receive);
    if (!is_temporary(reply, request.connected)) return reply;
    if (request.from && request.from() >= request.get.from + kProgressBytes) {
      attempt = 1;
      wait_s = request.backoff_s;
    }
    const double pause_s = std::max(wait_s, reply.retry_after_s.value_or(0));
    if (attempt == kAttempts || pause_s > kLongestWait_s) return reply;
    if (!wait_for(pause_s, request.get.cancelled)) {
      reply.failure = HttpFailure::cancelled;
      return reply;
    }
    wait_s *= 2;
  }
}

std::string failure_line(const CurlReply& reply, const HttpGet& get, const std::string& repo,
                         const std::string& what) {
  const std::string server = get.url.substr(0, get.url.find('/', get.url.find("://") + 3));
  const bool gated = reply.error_code == "GatedRepo" || reply.status == 403;
  if (reply.failure == HttpFailure::unreachable) {
    return fmt::format("{}: {} cannot be reached: {}", what, server, reply.failure_text);
  }
  if (reply.failure != HttpFailure::none) {
    return fmt::format("{}: the download broke off {} times: {}; the same command resumes it", what,
                       kAttempts, reply.failure_text);
  }
  if (reply.error_code == "RevisionNotFound") return fmt::format("{}: no such revision", what);
  if (reply.error_code == "EntryNotFound") return fmt::format("{}: no such file", what);
  if (gated && get.token.empty()) {
    return fmt::format("{}: access is restricted: accept the terms on {}/{} and set HF_TOKEN", what,
                       server, repo);
  }
  if (gated) {
    return fmt::format("{}: the token has no access: accept the terms on {}/{}", what, server,
                       repo);
  }
  if (reply.status == 401) {
    return get.token.empty()
               ? fmt::format("{}: no such repository, or a private one: set HF_TOKEN", what)
               : fmt::format("{}: no such repository, or the token in HF_TOKEN cannot read it",
                             what);
  }
  if (reply.status == 404) return fmt::format("{}: no such repository on {}", what, server);
  if (reply.status == 429) {
    return fmt::format("{}: {} limits the rate of requests{}", what, server,
                       reply.retry_after_s
                           ? fmt::format(": try again in {:.0f} s", *reply.retry_after_s)
                           : std::string());
  }
  return fmt::format("{}: {} answers with status {}", what, server, reply.status);
}

}  // namespace ridge
