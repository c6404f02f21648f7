#include "page/access.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <array>

#include "base/error.h"
#include "openai/openai_support.h"

namespace ridge {
namespace {

int status_of(const HttpRequest& request, const AccessRules& rules) {
  const auto refusal = refuse_head(request, rules);
  return refusal ? refusal->status : 200;
}

HttpRequest asking(const std::string& path, const std::string& host = "localhost:8080") {
  HttpRequest request;
  request.method = "GET";
  request.path = path;
  request.host = host;
  return request;
}

TEST(Access, ComparesKeysWhole) {
  EXPECT_TRUE(equal_in_constant_time("abc", "abc"));
  EXPECT_FALSE(equal_in_constant_time("abd", "abc"));
  EXPECT_FALSE(equal_in_constant_time("abcabc", "abc"));
  EXPECT_FALSE(equal_in_constant_time("ab", "abc"));
  EXPECT_FALSE(equal_in_constant_time("", "abc"));
  EXPECT_FALSE(equal_in_constant_time("", ""));
}

TEST(Access, KnowsTheNamesOfTheServer) {
  const auto status = [](const std::string& host, const AccessRules& rules) {
    return status_of(asking("/", host), rules);
  };
  const AccessRules local, proxied{.allowed_hosts = {"Models.example"}},
      all{.bound_host = "0.0.0.0"}, named{.bound_host = "gpu7.example"},
      any{.bound_host = "0.0.0.0", .allowed_hosts = {"*"}};
  for (const char* host : {"localhost", "LOCALHOST", "localhost.", "LocalHost.:8080", "127.0.0.1",
                           "127.8.7.6:1", "[::1]:8080", "[::1]", ""}) {
    for (const AccessRules* rules : {&local, &proxied, &all, &named, &any}) {
      EXPECT_EQ(status(host, *rules), 200) << host;
    }
  }
  for (const char* host : {"evil.example", "127.example.com", "localhost.evil.example", "::1x",
                           "models.example.evil.example", "127.0.0.1.evil.example:80"}) {
    for (const AccessRules* rules : {&local, &proxied, &all, &named}) {
      EXPECT_EQ(status(host, *rules), 421) << host;
    }
    EXPECT_EQ(status(host, any), 200) << host;
  }
  // A page of another name cannot have a numeric address for its own.
  EXPECT_EQ(status("192.168.1.7:8080", local), 421);
  EXPECT_EQ(status("192.168.1.7:8080", all), 200);
  EXPECT_EQ(status("[fe80::1]:8080", all), 200);
  EXPECT_EQ(status("models.EXAMPLE:443", proxied), 200);
  EXPECT_EQ(status("models.example", local), 421);
  EXPECT_EQ(status("GPU7.example.", named), 200);
  std::array<char, 256> machine{};
  ASSERT_EQ(::gethostname(machine.data(), machine.size() - 1), 0);
  EXPECT_EQ(status(machine.data(), all), 200);
}

TEST(Access, OthersAskWithAKey) {
  const AccessRules local{.keys = {"k"}}, exposed{.bound_host = "0.0.0.0", .keys = {"k"}},
      proxied{.allowed_hosts = {"models.example"}, .keys = {"k"}}, open{.bound_host = "0.0.0.0"};
  for (const char* path :
       {"/", "/app.js", "/health", "/healthz", "/version", "/metrics", "/api/login", "/nothing"}) {
    for (const AccessRules* rules : {&local, &exposed, &proxied, &open}) {
      EXPECT_EQ(status_of(asking(path), *rules), 200) << path;
    }
  }
  for (const char* path : {"/v1/models", "/v1/completions", "/v1/nothing", "/tokenize",
                           "/detokenize", "/models/x", "/chat/completions"}) {
    for (const AccessRules* rules : {&local, &exposed, &proxied}) {
      EXPECT_EQ(status_of(asking(path), *rules), 401) << path;
    }
    EXPECT_EQ(status_of(asking(path), open), 200) << path;
  }
  for (const char* path : {"/api/predict", "/api/live", "/api/serving", "/api/lab", "/api/nothing",
                           "/api/login/", "/api/openapi.json", "/api/explain/files"}) {
    EXPECT_EQ(status_of(asking(path), local), 200) << path;
    EXPECT_EQ(status_of(asking(path), exposed), 401) << path;
    EXPECT_EQ(status_of(asking(path), proxied), 401) << path;
    HttpRequest request = asking(path);
    request.authorization = "Bearer k";
    EXPECT_EQ(status_of(request, exposed), 200) << path;
  }
}

// The cookie stands for the key, in this browser and for this server's own page.
TEST(Access, ACookieStandsForTheKey) {
  const AccessRules rules{.bound_host = "0.0.0.0", .keys = {"first", "second"}};
  HttpRequest login = asking("/api/login", "gpu:8080");
  login.method = "POST";
  login.content_type = "application/json";
  EXPECT_EQ(status_of(login, {.allowed_hosts = {"gpu"}, .keys = {"first"}}), 200);
  const auto answer = [&](const std::string& body) {
    login.body = body;
    return log_in(login, rules);
  };
  EXPECT_EQ(answer(R"({"key": "third"})").status, 401);
  EXPECT_EQ(answer(R"({"key": ""})").status, 401);
  EXPECT_THROW(answer(R"({"key": 7})"), Error);
  EXPECT_THROW(answer(R"(["second"])"), Error);
  EXPECT_THROW(answer("second"), Error);
  const HttpReply good = answer(R"({"key": "second"})");
  EXPECT_EQ(good.status, 204);
  ASSERT_EQ(good.headers.size(), 1u);
  const std::string cookie = good.headers[0].second;
  EXPECT_TRUE(cookie.starts_with("ridge_key_8080="));
  EXPECT_TRUE(cookie.ends_with("; HttpOnly; SameSite=Strict"));
  EXPECT_EQ(cookie.find("second"), cookie.npos);

  const AccessRules named{.bound_host = "0.0.0.0", .allowed_hosts = {"gpu"}, .keys = rules.keys};
  HttpRequest request = asking("/api/predict", "gpu:8080");
  EXPECT_EQ(status_of(request, named), 401);
  request.cookie = "other=1; " + cookie.substr(0, cookie.find(';'));
  EXPECT_EQ(status_of(request, named), 200);
  request.path = "/v1/models";
  EXPECT_EQ(status_of(request, named), 200);
  request.origin = "http://gpu:8080";
  EXPECT_EQ(status_of(request, named), 200);
  request.origin = "http://gpu:3000";  // the same site, another port
  EXPECT_EQ(status_of(request, named), 401);
  request.origin.clear();
  for (const char* site : {"cross-site", "same-site"}) {
    request.fetch_site = site;
    EXPECT_EQ(status_of(request, named), 401) << site;
  }
  request.fetch_site = "same-origin";
  EXPECT_EQ(status_of(request, named), 200);
  request.host = "gpu:8081";  // another server of the machine
  EXPECT_EQ(status_of(request, named), 401);
  request.host = "gpu:8080";
  request.cookie.back() = request.cookie.back() == '0' ? '1' : '0';
  EXPECT_EQ(status_of(request, named), 401);
}

// A key is looked at before the body: of 8 MiB not a byte is taken from who has none.
TEST(Access, RefusesBeforeTheBody) {
  ApiServer server({.access = {.keys = {"k"}}, .serving = {}, .load = false});
  const auto status = [&](const std::string& header) {
    Connection connection(server.port());
    connection.send(
        "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 8000000\r\n"
        "Content-Type: application/json\r\n" +
        header + "\r\n");
    return parse_answer(connection.receive());
  };
  const Answer refused = status("X-Api-Key: wrong\r\n");
  EXPECT_EQ(refused.status, 401);
  EXPECT_EQ(refused.json()["error"]["code"], "invalid_api_key");
  EXPECT_NE(refused.head.find("x-request-id: "), std::string::npos);
  EXPECT_EQ(status("").status, 401);
  EXPECT_EQ(
      parse_answer(status("X-Api-Key: k\r\nExpect: 100-continue\r\n").head + "\r\n\r\n").status,
      100);
}

// Behind a key the whole way of a page: a file, the login, the API.
TEST(Access, APageBehindAKey) {
  ApiServer server({.access = {.allowed_hosts = {"models.example"}, .keys = {"k"}},
                    .serving = {},
                    .load = false});
  EXPECT_EQ(fetch(server.port(), "/").status, 200);
  EXPECT_EQ(fetch(server.port(), "/api/machines").status, 401);
  EXPECT_EQ(server.post("/api/login", {{"key", "x"}}).status, 401);
  EXPECT_EQ(server.post("/api/login", {{"kay", "k"}}).status, 400);
  EXPECT_EQ(fetch(server.port(), "/api/login").status, 405);
  EXPECT_EQ(server.post("/api/login", {{"key", std::string(5000, 'k')}}).status, 413);
  const Answer in = server.post("/api/login", {{"key", "k"}});
  EXPECT_EQ(in.status, 204);
  const std::string mark = "Set-Cookie: ";
  const size_t at = in.head.find(mark);
  ASSERT_NE(at, std::string::npos);
  const std::string cookie =
      in.head.substr(at + mark.size(), in.head.find(';', at) - at - mark.size());
  EXPECT_EQ(fetch(server.port(), "/api/machines", "Cookie: " + cookie + "\r\n").status, 200);
  EXPECT_EQ(fetch(server.port(), "/v1/models", "Cookie: " + cookie + "\r\n").status, 200);
}

}  // namespace
}  // namespace ridge
