// Reads HTTP/1 requests from bytes as they come (Beast's parser), and refuses what is malformed or
// too large. No socket and no clock.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "http/http.h"
#include "http/http_bodies.h"

namespace ridge {

class HttpReader {
 public:
  // `limits` must outlive the reader. Bodies count against `budget`; null: against none.
  explicit HttpReader(const HttpLimits& limits, std::shared_ptr<BodyBudget> budget = nullptr);
  ~HttpReader();
  HttpReader(const HttpReader&) = delete;
  HttpReader& operator=(const HttpReader&) = delete;

  enum class Result { more, done, refused };
  // Takes bytes from the front of `in`. At `done` request() is whole and the bytes after it are
  // left in `in`; at `refused` refusal() says why, and no later request can be read. more, also
  // when `in` is not empty, means that more must be appended.
  Result read(std::string& in);
  void expect_next();  // forgets the request

  bool begun() const;          // a byte of the request has come
  bool has_header() const;     // all of its header has
  size_t body_bytes() const;   // so much of its body has
  bool wants_continue();       // the client waits for "100 Continue"; true once a request
  HttpRequest& request();      // at done
  BodyLease take_lease();      // of its body, at done
  const HttpReply& refusal();  // at refused
  bool is_http11() const;      // these three once the header has been read
  bool is_head_only() const;   // the answer's body must not be sent
  bool keeps_alive() const;    // the client wants to send further requests

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace ridge
