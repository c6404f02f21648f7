#include "http/http_text.h"

#include <fmt/format.h>
#include <strings.h>

#include <algorithm>
#include <boost/beast/http/status.hpp>
#include <iterator>

namespace ridge {
namespace {

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

std::string decode_escapes(std::string_view text, bool plus_is_space) {
  std::string decoded;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '%' && i + 2 < text.size()) {
      const int high = hex_digit(text[i + 1]), low = hex_digit(text[i + 2]);
      if (high >= 0 && low >= 0) {
        decoded += static_cast<char>(high * 16 + low);
        i += 2;
        continue;
      }
    }
    decoded += plus_is_space && text[i] == '+' ? ' ' : text[i];
  }
  return decoded;
}

bool has_control_character(std::string_view text) {
  return std::any_of(text.begin(), text.end(),
                     [](unsigned char c) { return (c < 32 && c != '\t') || c == 127; });
}

constexpr const char* kPolicy =
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

}  // namespace

bool read_target(std::string_view target, HttpRequest& request) {
  if (target == "*") {
    request.path = target;
    return true;
  }
  constexpr std::string_view kScheme = "http://";
  if (target.size() > kScheme.size() &&
      strncasecmp(target.data(), kScheme.data(), kScheme.size()) == 0) {
    target.remove_prefix(kScheme.size());
    const size_t end = std::min(target.find_first_of("/?"), target.size());
    request.host = target.substr(0, end);
    target.remove_prefix(end);
  } else if (!target.starts_with('/')) {
    return false;
  }
  const size_t mark = std::min(target.find('?'), target.size());
  request.path = mark == 0 ? "/" : decode_escapes(target.substr(0, mark), false);
  std::string_view rest = target.substr(std::min(mark + 1, target.size()));
  while (!rest.empty()) {
    const size_t end = std::min(rest.find('&'), rest.size());
    const std::string_view pair = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    if (pair.empty()) continue;
    const size_t equals = std::min(pair.find('='), pair.size());
    const std::string name = decode_escapes(pair.substr(0, equals), true);
    const std::string_view value = pair.substr(std::min(equals + 1, pair.size()));
    if (!request.query.insert_or_assign(name, decode_escapes(value, true)).second) {
      request.repeated = name;
    }
  }
  return true;
}

bool has_media_type(std::string_view content_type, std::string_view type) {
  std::string_view given = content_type.substr(0, content_type.find(';'));
  while (given.ends_with(' ') || given.ends_with('\t')) given.remove_suffix(1);
  return given.size() == type.size() && strncasecmp(given.data(), type.data(), type.size()) == 0;
}

std::string answer_head(const HttpReply& reply, HttpFraming framing, size_t body_bytes,
                        std::string_view connection) {
  const auto known =
      boost::beast::http::obsolete_reason(static_cast<boost::beast::http::status>(reply.status));
  const std::string_view reason(known.data(), known.size());
  std::string head = fmt::format("HTTP/1.1 {} {}\r\n", reply.status, reason);
  const auto add = [&](std::string_view name, std::string_view value) {
    fmt::format_to(std::back_inserter(head), "{}: {}\r\n", name, value);
  };
  const auto add_default = [&](const char* name, std::string_view value) {
    const bool given = std::any_of(
        reply.headers.begin(), reply.headers.end(),
        [&](const auto& header) { return strcasecmp(header.first.c_str(), name) == 0; });
    if (!given) add(name, value);
  };
  // An answer with one of these states has no body, and neither its type nor its length.
  const bool bodiless = reply.status == 204 || reply.status == 304;
  if (!bodiless) {
    add_default("Content-Type", reply.type);
    if (framing == HttpFraming::content_length) add("Content-Length", std::to_string(body_bytes));
    if (framing == HttpFraming::chunked) add("Transfer-Encoding", "chunked");
  }
  if (reply.gzipped) add("Content-Encoding", "gzip");
  if (!connection.empty()) add("Connection", connection);
  add_default("Cache-Control", reply.cacheable ? "no-cache" : "no-store");
  add_default("Content-Security-Policy", kPolicy);
  add_default("X-Content-Type-Options", "nosniff");
  add_default("Referrer-Policy", "no-referrer");
  add_default("Cross-Origin-Resource-Policy", "same-origin");
  for (const auto& [name, value] : reply.headers) {
    if (!has_control_character(name) && !has_control_character(value)) add(name, value);
  }
  return head + "\r\n";
}

HttpReply plain_error(int status, std::string_view message) {
  HttpReply reply;
  reply.status = status;
  reply.body = fmt::format("{{\"error\":{{\"message\":\"{}\"}}}}\n", message);
  return reply;
}

HttpReply busy_error(std::string_view message, int retry_after_s) {
  HttpReply reply = plain_error(503, message);
  reply.headers.emplace_back("Retry-After", std::to_string(retry_after_s));
  return reply;
}

}  // namespace ridge
