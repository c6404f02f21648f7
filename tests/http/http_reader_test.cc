// Requests as bytes: what is read, what is refused, and that the packets' borders do not matter.
#include "http/http_reader.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <vector>

#include "base/random.h"
#include "http/http_text.h"

namespace ridge {
namespace {

// What a reader makes of a text that comes in pieces of these sizes (the last one repeated): each
// request, or the status of the refusal, in a line.
std::vector<std::string> read_all(const std::string& text, const std::vector<size_t>& sizes) {
  const HttpLimits limits;
  HttpReader reader(limits);
  std::vector<std::string> lines;
  std::string in;
  for (size_t at = 0, piece = 0; at < text.size(); ++piece) {
    const size_t size = sizes[std::min(piece, sizes.size() - 1)];
    in += text.substr(at, size);
    at += size;
    for (;;) {
      const HttpReader::Result result = reader.read(in);
      if (result == HttpReader::Result::more) break;
      if (result == HttpReader::Result::refused) {
        lines.push_back(std::to_string(reader.refusal().status));
        return lines;
      }
      const HttpRequest& request = reader.request();
      std::string line = request.method + " " + request.path + " " + request.host + " " +
                         request.content_type + " " + request.authorization + " " + request.body;
      for (const auto& [name, value] : request.query) line += " " + name + "=" + value;
      lines.push_back(line + (reader.keeps_alive() ? " keep" : " close"));
      reader.expect_next();
    }
  }
  return lines;
}

const std::string kRequests =
    "GET /a?x=1&y=%20+z HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer k\r\n\r\n"
    "\r\nPOST /v1/c HTTP/1.1\r\nhost: h\r\nContent-Type: application/json\r\nContent-Length: "
    "7\r\n\r\n"
    "{\"a\":1}"
    "POST /v1/d HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n"
    "5;e=\"f\"\r\nhello\r\n01\r\n!\r\n0\r\nAuthorization: Bearer evil\r\n\r\n"
    "POST /v1/e HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
    "GET /f HTTP/1.0\r\n\r\n";

TEST(HttpReader, ReadsRequestsInAnyPieces) {
  const std::vector<std::string> whole = read_all(kRequests, {kRequests.size()});
  EXPECT_EQ(whole, (std::vector<std::string>{"GET /a h  Bearer k  x=1 y=  z keep",
                                             "POST /v1/c h application/json  {\"a\":1} keep",
                                             "POST /v1/d h   hello! keep", "POST /v1/e h    keep",
                                             "GET /f     close"}));
  for (size_t size = 1; size < 60; ++size) EXPECT_EQ(read_all(kRequests, {size}), whole) << size;
  for (size_t cut = 1; cut < kRequests.size(); ++cut) {
    EXPECT_EQ(read_all(kRequests, {cut, kRequests.size()}), whole) << cut;
  }
}

// Whether two readings agree. An error in a request that is not whole may be found later in one.
bool agree(std::vector<std::string> a, std::vector<std::string> b) {
  if (a.size() > b.size()) a.swap(b);
  if (b.size() == a.size() + 1 && b.back().size() == 3) b.pop_back();
  return a == b;
}

// Mutated texts: no crash, and the same meaning in one piece and byte by byte.
TEST(HttpReader, ReadsMutationsInAnyPieces) {
  SplitMix64 words(7);
  const std::string bytes = "\r\n :;/%?=&0159afHTP\t\0\x7f\xff";
  for (int round = 0; round < 3000; ++round) {
    std::string text = kRequests;
    for (uint64_t edits = 1 + words.next() % 4; edits > 0; --edits) {
      const size_t at = words.next() % text.size();
      const char byte = bytes[words.next() % bytes.size()];
      switch (words.next() % 3) {
        case 0:
          text[at] = byte;
          break;
        case 1:
          text.insert(at, 1, byte);
          break;
        default:
          text.erase(at, 1 + words.next() % 8);
          break;
      }
    }
    const std::vector<std::string> whole = read_all(text, {text.size()});
    EXPECT_TRUE(agree(read_all(text, {1}), whole)) << text;
    EXPECT_TRUE(agree(read_all(text, {1 + words.next() % 40}), whole)) << text;
  }
}

TEST(HttpReader, TakesFieldsFromTheHeaderOnly) {
  const HttpLimits limits;
  HttpReader reader(limits);
  std::string in =
      "POST /v1/x HTTP/1.1\r\nHost: h\r\nX-Api-Key: k\r\nOrigin: http://o\r\nX-Request-Id: 7\r\n"
      "Accept-Encoding: br, gzip\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nX-Api-Key: evil\r\n\r\n";
  ASSERT_EQ(reader.read(in), HttpReader::Result::done);
  EXPECT_EQ(reader.request().api_key, "k");
  EXPECT_EQ(reader.request().origin, "http://o");
  EXPECT_EQ(reader.request().request_id, "7");
  EXPECT_TRUE(reader.request().takes_gzip);
}

// A body that is not wanted is refused when the header has come, before a byte of the body has.
TEST(HttpReader, RefusesAtTheHead) {
  HttpLimits limits;
  limits.refuse_head = [](const HttpRequest& request) -> std::optional<HttpReply> {
    if (request.content_type == "good/type") return std::nullopt;
    return plain_error(415, "a wrong type");
  };
  const auto read = [&](std::string text) {
    HttpReader reader(limits);
    const HttpReader::Result result = reader.read(text);
    return result == HttpReader::Result::refused ? reader.refusal().status : int(result);
  };
  const std::string head = "POST /x HTTP/1.1\r\nHost: h\r\nContent-Type: ";
  EXPECT_EQ(read(head + "bad/type\r\nContent-Length: 1000\r\n\r\n"), 415);
  EXPECT_EQ(read(head + "bad/type\r\nTransfer-Encoding: chunked\r\n\r\n"), 415);
  EXPECT_EQ(read(head + "bad/type\r\nContent-Length: 1\r\nExpect: 100-continue\r\n\r\n"), 415);
  EXPECT_EQ(read(head + "good/type\r\nContent-Length: 1000\r\n\r\n"),
            int(HttpReader::Result::more));
  EXPECT_EQ(read("GET /x HTTP/1.1\r\nHost: h\r\n\r\n"), int(HttpReader::Result::done));
}

TEST(HttpText, ComparesMediaTypes) {
  for (const char* type : {"application/json", "Application/JSON; charset=utf-8",
                           "application/json;x=\"y;z\"", "APPLICATION/JSON \t;"}) {
    EXPECT_TRUE(has_media_type(type, "application/json")) << type;
  }
  for (const char* type : {"", ";", "application/jsonl", "application/json x", "text/json",
                           "application/jso", "text/plain; application/json"}) {
    EXPECT_FALSE(has_media_type(type, "application/json")) << type;
  }
}

TEST(HttpText, ReadsTargets) {
  const auto read = [](std::string_view target) {
    HttpRequest request;
    request.host = "header";
    if (!read_target(target, request)) return std::string("refused");
    std::string text = request.host + " " + request.path;
    for (const auto& [name, value] : request.query) text += " " + name + "=" + value;
    return text + (request.repeated.empty() ? "" : " twice " + request.repeated);
  };
  EXPECT_EQ(read("/"), "header /");
  EXPECT_EQ(read("/a%2Fb+c?d+e=f%3d&g&=h&&"), "header /a/b+c =h d e=f= g=");
  EXPECT_EQ(read("/%zz%4?%=%"), "header /%zz%4 %=%");
  EXPECT_EQ(read("/?a=1&b=2&a=3"), "header / a=3 b=2 twice a");
  EXPECT_EQ(read("HTTP://name:80?a=1"), "name:80 / a=1");
  EXPECT_EQ(read("http://name/p"), "name /p");
  EXPECT_EQ(read("*"), "header *");
  EXPECT_EQ(read("a"), "refused");
  EXPECT_EQ(read(""), "refused");
  EXPECT_EQ(read("host:80"), "refused");
}

TEST(HttpText, WritesHeads) {
  HttpReply reply;
  reply.headers = {{"cache-control", "no-cache"}, {"X-Split", "a\r\nb"}, {"Retry-After", "1"}};
  const std::string head = answer_head(reply, HttpFraming::content_length, 12, "close");
  EXPECT_TRUE(
      head.starts_with("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
                       "Content-Length: 12\r\nConnection: close\r\n"));
  EXPECT_TRUE(head.ends_with("cache-control: no-cache\r\nRetry-After: 1\r\n\r\n"));
  EXPECT_EQ(head.find("no-store"), std::string::npos);
  reply.status = 204;
  const std::string empty = answer_head(reply, HttpFraming::content_length, 0, "");
  EXPECT_EQ(empty.find("\nContent-Length"), std::string::npos);
  EXPECT_EQ(empty.find("\nContent-Type"), std::string::npos);
}

}  // namespace
}  // namespace ridge
