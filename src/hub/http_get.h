// HTTP GET through libcurl, which is loaded when the first client is made: the program starts, and
// everything but `ridge pull` works, where the library is missing.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace ridge {

struct HttpGet {
  std::string url;
  std::string token;  // bearer token; only the url's own origin gets it
  uint64_t from = 0;  // first byte wanted; above 0 it asks for a range
  // The transfer fails when it brings fewer bytes a second than this for so long.
  double slowest_bytes_per_s = 1024, stall_s = 30;
  std::function<bool()> cancelled;  // asked about once a second, more often while bytes arrive
};

enum class HttpFailure {
  none,
  unreachable,  // no connection: name, address, TLS
  cut,          // the connection ended, stalled, or the reply was not HTTP
  refused,      // the reply's receiver wanted no more
  cancelled,
};

struct CurlReply {
  long status = 0;  // of the last reply, after redirects; 0 where none arrived
  HttpFailure failure = HttpFailure::none;
  std::string failure_text;             // libcurl's words
  std::string error_code;               // the Hub's X-Error-Code
  std::optional<uint64_t> length;       // Content-Length
  std::optional<uint64_t> range_start;  // Content-Range: bytes START-END/TOTAL
  std::optional<double> retry_after_s;  // Retry-After in seconds
};

// One connection, kept open between requests to the same host. Not for two threads at once.
class CurlClient {
 public:
  CurlClient();  // throws Error where libcurl is missing
  ~CurlClient();
  CurlClient(const CurlClient&) = delete;
  CurlClient& operator=(const CurlClient&) = delete;

  // `receive` gets the body of a 200 or 206, piece by piece, with the reply's headers; false ends
  // the transfer. Its exceptions pass through. Redirects are followed, from https only to https.
  using Receive = std::function<bool(const CurlReply&, std::string_view)>;
  CurlReply get(const HttpGet& request, const Receive& receive);

 private:
  struct Handle;
  std::unique_ptr<Handle> handle_;
};

// "%2F" for "/" and so on; letters, digits and -._~ stay, and what `kept` lists.
std::string percent_encode(std::string_view text, std::string_view kept = "");

}  // namespace ridge
