#include "serve/http_reader.h"

#include <algorithm>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <limits>
#include <optional>

#include "serve/http_text.h"

namespace ridge {
namespace {

namespace beast_http = boost::beast::http;
using RequestParser = beast_http::request_parser<beast_http::string_body>;

// Every chunked body ends with this.
constexpr std::string_view kLastChunk = "0\r\n\r\n";

std::string field_value(const beast_http::fields& fields, boost::beast::string_view name) {
  const auto found = fields.find(name);
  return found == fields.end() ? std::string() : std::string(found->value());
}

// All but the body. False if it is malformed.
bool read_header(const RequestParser& parser, HttpRequest& to) {
  const auto& from = parser.get();
  to.method = std::string(from.method_string());
  to.host = field_value(from, "Host");
  to.content_type = field_value(from, "Content-Type");
  to.takes_gzip = field_value(from, "Accept-Encoding").find("gzip") != std::string::npos;
  to.authorization = field_value(from, "Authorization");
  to.api_key = field_value(from, "X-Api-Key");
  to.origin = field_value(from, "Origin");
  to.requested_headers = field_value(from, "Access-Control-Request-Headers");
  to.request_id = field_value(from, "X-Request-Id");
  to.fetch_site = field_value(from, "Sec-Fetch-Site");
  const size_t hosts = from.count(beast_http::field::host);
  if (hosts > 1 || (hosts == 0 && from.version() == 11)) return false;
  return read_target({from.target().data(), from.target().size()}, to);
}

}  // namespace

struct HttpReader::Impl {
  explicit Impl(const HttpLimits& with) : limits(with) { expect_next(); }

  void expect_next() {
    parser.emplace();
    parser->header_limit(static_cast<uint32_t>(limits.header_bytes));
    // None until the path is known. (Boost 1.74 takes boost::none for a limit of no bytes.)
    parser->body_limit(std::numeric_limits<uint64_t>::max());
    request = {};
    begun = header_done = wants_continue = false;
    header_bytes = 0;
  }

  Result refuse(HttpReply reply) {
    parser.reset();
    refusal = std::move(reply);
    return Result::refused;
  }
  Result refuse(int status, std::string_view message) {
    return refuse(plain_error(status, message));
  }

  Result read(std::string& in) {
    if (!begun) {
      // Empty lines before a request are allowed.
      in.erase(0, std::min(in.find_first_not_of("\r\n"), in.size()));
      begun = !in.empty();
    }
    while (!in.empty()) {
      // Beast asserts that it gets the last chunk whole.
      if (header_done && parser->chunked() && in.size() < kLastChunk.size()) break;
      boost::system::error_code failure;
      const size_t used = parser->put(boost::asio::buffer(in), failure);
      in.erase(0, used);
      if (!header_done) header_bytes += used;
      const bool needs_more = failure == beast_http::error::need_more;
      // Beast's limit counts what it has not parsed yet, line by line; this one counts all headers,
      // and the lines between chunks.
      if (failure == beast_http::error::header_limit || header_bytes > limits.header_bytes ||
          (needs_more && in.size() > limits.header_bytes)) {
        return refuse(431, "the headers are too long");
      }
      if (failure == beast_http::error::body_limit) return refuse(413, "the body is too large");
      if (failure && !needs_more) return refuse(400, "this request is not HTTP/1.1 or HTTP/1.0");
      if (!header_done && parser->is_header_done()) {
        header_done = true;
        if (accept_header() == Result::refused) return Result::refused;
      }
      if (parser->is_done()) {
        request.body = std::move(parser->get().body());
        parser.reset();
        return Result::done;
      }
      if (needs_more) break;
    }
    wants_continue = wants_continue && in.empty();  // the client does not wait if it has sent more
    return Result::more;
  }

  // Refuses what can be refused before the body is read. The fields are taken here: the trailer of
  // a chunked body could add to them.
  Result accept_header() {
    const auto& message = parser->get();
    http11 = message.version() == 11;
    head_only = message.method() == beast_http::verb::head;
    keeps_alive = parser->keep_alive();
    if (!read_header(*parser, request)) return refuse(400, "a bad request target or Host");
    if (request.path.size() > limits.path_bytes) return refuse(414, "the path is too long");
    if (message.count(beast_http::field::transfer_encoding) > 0 && !parser->chunked()) {
      return refuse(501, "the only transfer encoding known here is chunked");
    }
    const size_t limit = limits.body_bytes(request.path);
    if (parser->content_length().value_or(0) > limit) return refuse(413, "the body is too large");
    const bool has_body = parser->chunked() || parser->content_length().value_or(0) > 0;
    if (has_body && limits.refuse_head) {
      if (std::optional<HttpReply> reply = limits.refuse_head(request)) {
        return refuse(*std::move(reply));
      }
    }
    parser->body_limit(limit);
    parser->eager(true);
    const std::string expected = field_value(message, "Expect");
    if (expected.empty() || !http11) return Result::more;
    if (!boost::beast::iequals(expected, "100-continue")) {
      return refuse(417, "the only expectation known here is 100-continue");
    }
    wants_continue = !parser->is_done();
    return Result::more;
  }

  const HttpLimits& limits;
  std::optional<RequestParser> parser;
  HttpRequest request;
  HttpReply refusal;
  bool begun = false, header_done = false, wants_continue = false;
  size_t header_bytes = 0;
  bool http11 = true, head_only = false, keeps_alive = false;
};

HttpReader::HttpReader(const HttpLimits& limits) : impl_(std::make_unique<Impl>(limits)) {}
HttpReader::~HttpReader() = default;
HttpReader::Result HttpReader::read(std::string& in) { return impl_->read(in); }
void HttpReader::expect_next() { impl_->expect_next(); }
bool HttpReader::begun() const { return impl_->begun; }
bool HttpReader::wants_continue() { return std::exchange(impl_->wants_continue, false); }
HttpRequest& HttpReader::request() { return impl_->request; }
const HttpReply& HttpReader::refusal() { return impl_->refusal; }
bool HttpReader::is_http11() const { return impl_->http11; }
bool HttpReader::is_head_only() const { return impl_->head_only; }
bool HttpReader::keeps_alive() const { return impl_->keeps_alive; }

}  // namespace ridge
