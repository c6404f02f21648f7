#include "http/http_reader.h"

#include <algorithm>
#include <boost/beast/core/string.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <iterator>
#include <limits>
#include <optional>
#include <utility>

#include "http/http_text.h"

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

bool is_chunked_alone(const beast_http::fields& fields) {
  const auto all = fields.equal_range(beast_http::field::transfer_encoding);
  return std::next(all.first) == all.second && boost::beast::iequals(all.first->value(), "chunked");
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
  to.cookie = field_value(from, "Cookie");
  const size_t hosts = from.count(beast_http::field::host);
  if (hosts > 1 || (hosts == 0 && from.version() == 11)) return false;
  return read_target({from.target().data(), from.target().size()}, to);
}

}  // namespace

struct HttpReader::Impl {
  Impl(const HttpLimits& with, std::shared_ptr<BodyBudget> bodies)
      : limits(with), budget(std::move(bodies)) {
    expect_next();
  }

  void expect_next() {
    parser.emplace();
    parser->header_limit(static_cast<uint32_t>(limits.header_bytes));
    // None until the path is known. (Boost 1.74 takes boost::none for a limit of no bytes.)
    parser->body_limit(std::numeric_limits<uint64_t>::max());
    request = {};
    lease = BodyLease(budget);
    begun = header_done = wants_continue = false;
    header_bytes = 0;
  }

  Result refuse(HttpReply reply) {
    parser.reset();
    lease.release();
    refusal = std::move(reply);
    return Result::refused;
  }
  Result refuse(int status, std::string_view message) {
    return refuse(plain_error(status, message));
  }
  size_t counted(size_t bytes) const { return bytes - std::min(bytes, limits.free_body_bytes); }
  Result refuse_full() {
    return refuse(busy_error("the server holds as many bodies as it may: try again", 1));
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
      if (!lease.grow_to(counted(parser->get().body().size()))) return refuse_full();
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
    if (message.count(beast_http::field::transfer_encoding) > 0) {
      if (!http11) return refuse(400, "HTTP/1.0 has no transfer encodings");
      if (!is_chunked_alone(message)) {
        return refuse(501, "the only transfer encoding known here is chunked");
      }
    }
    const uint64_t length = parser->content_length().value_or(0);
    if (parser->chunked() || length > 0) {
      if (limits.refuse_head) {
        if (std::optional<HttpReply> reply = limits.refuse_head(request)) {
          return refuse(*std::move(reply));
        }
      }
      const HttpBodyRule rule = limits.body(request);
      if (length > rule.bytes) return refuse(413, "the body is too large");
      if (rule.alone && !lease.take_alone()) {
        return refuse(busy_error("another body of this kind is being received: try again", 5));
      }
      if (!rule.alone && budget != nullptr && !budget->has(counted(length))) return refuse_full();
      parser->body_limit(rule.bytes);
    }
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
  const std::shared_ptr<BodyBudget> budget;
  BodyLease lease;
  std::optional<RequestParser> parser;
  HttpRequest request;
  HttpReply refusal;
  bool begun = false, header_done = false, wants_continue = false;
  size_t header_bytes = 0;
  bool http11 = true, head_only = false, keeps_alive = false;
};

HttpReader::HttpReader(const HttpLimits& limits, std::shared_ptr<BodyBudget> budget)
    : impl_(std::make_unique<Impl>(limits, std::move(budget))) {}
HttpReader::~HttpReader() = default;
HttpReader::Result HttpReader::read(std::string& in) { return impl_->read(in); }
void HttpReader::expect_next() { impl_->expect_next(); }
bool HttpReader::begun() const { return impl_->begun; }
bool HttpReader::has_header() const { return impl_->header_done; }
size_t HttpReader::body_bytes() const {
  return impl_->header_done && impl_->parser ? impl_->parser->get().body().size() : 0;
}
BodyLease HttpReader::take_lease() { return std::move(impl_->lease); }
bool HttpReader::wants_continue() { return std::exchange(impl_->wants_continue, false); }
HttpRequest& HttpReader::request() { return impl_->request; }
const HttpReply& HttpReader::refusal() { return impl_->refusal; }
bool HttpReader::is_http11() const { return impl_->http11; }
bool HttpReader::is_head_only() const { return impl_->head_only; }
bool HttpReader::keeps_alive() const { return impl_->keeps_alive; }

}  // namespace ridge
