#include "hub/http_get.h"

#include <curl/curl.h>
#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <exception>

#include "base/error.h"

namespace ridge {
namespace {

struct CurlLibrary {
  decltype(&curl_global_init) global_init;
  decltype(&curl_easy_init) easy_init;
  decltype(&curl_easy_reset) easy_reset;
  decltype(&curl_easy_setopt) easy_setopt;
  decltype(&curl_easy_perform) easy_perform;
  decltype(&curl_easy_getinfo) easy_getinfo;
  decltype(&curl_easy_cleanup) easy_cleanup;
  decltype(&curl_easy_strerror) easy_strerror;
  decltype(&curl_slist_append) slist_append;
  decltype(&curl_slist_free_all) slist_free_all;
};

CurlLibrary load_curl() {
  // Debian's OpenSSL and GnuTLS builds. The library stays loaded until the program ends.
  void* library = nullptr;
  for (const char* name : {"libcurl.so.4", "libcurl-gnutls.so.4"}) {
    if (library == nullptr) library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
  }
  if (library == nullptr) throw Error("ridge pull needs libcurl: apt-get install libcurl4");
  CurlLibrary curl{};
  const auto find = [&](auto& function, const char* name) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, name));
    if (function == nullptr) throw Error("libcurl has no {}: it is too old", name);
  };
  find(curl.global_init, "curl_global_init");
  find(curl.easy_init, "curl_easy_init");
  find(curl.easy_reset, "curl_easy_reset");
  find(curl.easy_setopt, "curl_easy_setopt");
  find(curl.easy_perform, "curl_easy_perform");
  find(curl.easy_getinfo, "curl_easy_getinfo");
  find(curl.easy_cleanup, "curl_easy_cleanup");
  find(curl.easy_strerror, "curl_easy_strerror");
  find(curl.slist_append, "curl_slist_append");
  find(curl.slist_free_all, "curl_slist_free_all");
  if (curl.global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK) throw Error("libcurl does not start");
  return curl;
}

const CurlLibrary& curl_library() {
  static const CurlLibrary library = load_curl();
  return library;
}

// Scheme, host and port: "https://huggingface.co".
std::string_view origin_of(std::string_view url) {
  const size_t scheme = url.find("://");
  if (scheme == url.npos) return url;
  return url.substr(0, url.find_first_of("/?#\\", scheme + 3));
}

bool equal_ignoring_case(std::string_view a, std::string_view b) {
  return std::ranges::equal(
      a, b, [](unsigned char x, unsigned char y) { return std::tolower(x) == std::tolower(y); });
}

std::optional<uint64_t> whole_number(std::string_view text) {
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end == text.data()) return std::nullopt;
  return value;
}

// What one transfer's callbacks work on.
struct Exchange {
  const HttpGet& request;
  const CurlClient::Receive& receive;
  CurlReply reply;
  std::exception_ptr thrown;
};

void read_header(std::string_view line, CurlReply& reply) {
  if (line.starts_with("HTTP/")) {  // a new reply, such as after "100 Continue"
    const std::optional<uint64_t> status =
        whole_number(line.substr(std::min(line.size(), line.find(' ') + 1)));
    reply = {};
    reply.status = static_cast<long>(status.value_or(0));
    return;
  }
  const size_t colon = line.find(':');
  if (colon == line.npos) return;
  const std::string_view name = line.substr(0, colon);
  std::string_view value = line.substr(colon + 1);
  while (!value.empty() && value.front() == ' ') value.remove_prefix(1);
  while (!value.empty() && std::isspace(static_cast<unsigned char>(value.back())))
    value.remove_suffix(1);
  if (equal_ignoring_case(name, "content-length")) reply.length = whole_number(value);
  if (equal_ignoring_case(name, "x-error-code")) reply.error_code = value;
  if (equal_ignoring_case(name, "retry-after")) reply.retry_after_s = whole_number(value);
  constexpr std::string_view kBytes = "bytes ";
  if (equal_ignoring_case(name, "content-range") && value.starts_with(kBytes)) {
    reply.range_start = whole_number(value.substr(kBytes.size()));
  }
}

size_t on_header(char* data, size_t size, size_t count, void* user) {
  read_header({data, size * count}, static_cast<Exchange*>(user)->reply);
  return size * count;
}

size_t on_body(char* data, size_t size, size_t count, void* user) {
  auto& exchange = *static_cast<Exchange*>(user);
  const std::string_view bytes(data, size * count);
  if (exchange.reply.status != 200 && exchange.reply.status != 206) return bytes.size();
  try {
    if (exchange.receive(exchange.reply, bytes)) return bytes.size();
  } catch (...) {  // must not pass through libcurl's frames
    exchange.thrown = std::current_exception();
  }
  return 0;  // libcurl ends the transfer with CURLE_WRITE_ERROR
}

int on_progress(void* user, curl_off_t, curl_off_t, curl_off_t, curl_off_t) {
  const HttpGet& request = static_cast<Exchange*>(user)->request;
  return request.cancelled && request.cancelled() ? 1 : 0;
}

HttpFailure failure_of(CURLcode code) {
  switch (code) {
    case CURLE_OK:
      return HttpFailure::none;
    case CURLE_WRITE_ERROR:
      return HttpFailure::refused;
    case CURLE_ABORTED_BY_CALLBACK:
      return HttpFailure::cancelled;
    case CURLE_UNSUPPORTED_PROTOCOL:
    case CURLE_URL_MALFORMAT:
    case CURLE_COULDNT_RESOLVE_PROXY:
    case CURLE_COULDNT_RESOLVE_HOST:
    case CURLE_COULDNT_CONNECT:
    case CURLE_SSL_CONNECT_ERROR:
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_CACERT_BADFILE:
      return HttpFailure::unreachable;
    default:
      return HttpFailure::cut;
  }
}

bool is_redirect(long status) {
  return status == 301 || status == 302 || status == 303 || status == 307 || status == 308;
}

// One request, without following a redirect. Returns where the reply redirects to.
std::string get_once(CURL* easy, const std::string& url, const std::string& token,
                     Exchange& exchange) {
  const CurlLibrary& curl = curl_library();
  const HttpGet& request = exchange.request;
  curl.easy_reset(easy);  // keeps the connections
  const auto set = [&](CURLoption option, auto value) { curl.easy_setopt(easy, option, value); };
  set(CURLOPT_URL, url.c_str());
  set(CURLOPT_NOSIGNAL, 1L);
  set(CURLOPT_USERAGENT, "ridge");
  set(CURLOPT_CONNECTTIMEOUT, 15L);
  set(CURLOPT_LOW_SPEED_LIMIT, static_cast<long>(request.slowest_bytes_per_s));
  set(CURLOPT_LOW_SPEED_TIME, std::max(1L, static_cast<long>(request.stall_s)));
  set(CURLOPT_HEADERFUNCTION, &on_header);
  set(CURLOPT_HEADERDATA, static_cast<void*>(&exchange));
  set(CURLOPT_WRITEFUNCTION, &on_body);
  set(CURLOPT_WRITEDATA, static_cast<void*>(&exchange));
  set(CURLOPT_XFERINFOFUNCTION, &on_progress);
  set(CURLOPT_XFERINFODATA, static_cast<void*>(&exchange));
  set(CURLOPT_NOPROGRESS, 0L);
  set(CURLOPT_BUFFERSIZE, 256L << 10);
  const std::string range = fmt::format("{}-", request.from);
  if (request.from > 0) set(CURLOPT_RANGE, range.c_str());
  const std::unique_ptr<curl_slist, decltype(curl.slist_free_all)> headers(
      token.empty() ? nullptr
                    : curl.slist_append(nullptr, ("Authorization: Bearer " + token).c_str()),
      curl.slist_free_all);
  set(CURLOPT_HTTPHEADER, headers.get());

  exchange.reply = {};
  const CURLcode code = curl.easy_perform(easy);
  if (exchange.thrown) std::rethrow_exception(exchange.thrown);
  exchange.reply.failure = failure_of(code);
  if (code != CURLE_OK) exchange.reply.failure_text = curl.easy_strerror(code);
  const char* next = nullptr;
  curl.easy_getinfo(easy, CURLINFO_REDIRECT_URL, &next);
  return next == nullptr ? "" : next;
}

}  // namespace

struct CurlClient::Handle {
  CURL* easy = curl_library().easy_init();
  ~Handle() { curl_library().easy_cleanup(easy); }
};

CurlClient::CurlClient() : handle_(std::make_unique<Handle>()) {
  if (handle_->easy == nullptr) throw Error("libcurl has no memory");
}
CurlClient::~CurlClient() = default;

CurlReply CurlClient::get(const HttpGet& request, const Receive& receive) {
  constexpr int kMaxRedirects = 10;
  Exchange exchange{request, receive, {}, nullptr};
  std::string url = request.url;
  for (int hop = 0;; ++hop) {
    // libcurl could follow by itself, but what it does with the token there depends on its version.
    const bool own = equal_ignoring_case(origin_of(url), origin_of(request.url));
    const std::string next = get_once(handle_->easy, url, own ? request.token : "", exchange);
    if (exchange.reply.failure != HttpFailure::none || !is_redirect(exchange.reply.status)) {
      return std::move(exchange.reply);
    }
    if (next.empty() || hop == kMaxRedirects) {
      throw Error("{}: redirects without end", request.url);
    }
    if (!next.starts_with("https://") &&
        !(request.url.starts_with("http://") && next.starts_with("http://"))) {
      throw Error("{}: redirects to {}, which is not https", request.url, origin_of(next));
    }
    url = next;
  }
}

std::string percent_encode(std::string_view text, std::string_view kept) {
  std::string encoded;
  for (const unsigned char c : text) {
    const bool plain = std::isalnum(c) || c == '-' || c == '.' || c == '_' || c == '~' ||
                       kept.find(static_cast<char>(c)) != kept.npos;
    encoded += plain ? std::string(1, static_cast<char>(c)) : fmt::format("%{:02X}", c);
  }
  return encoded;
}

}  // namespace ridge
