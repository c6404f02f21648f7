// The server over real sockets: what it answers, what it refuses, and that it lives.
#include "page/server.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>

#include "support.h"

namespace ridge {
namespace {

TEST(Server, AnswersGetAndPostAlike) {
  TestServer server;
  const Answer get = fetch(server.port(), "/api/predict?model=llama-3-8b&batch=8&no-flash=true");
  const Answer posted =
      post(server.port(), "/api/predict", R"({"model":"llama-3-8b","batch":8,"no-flash":true})");
  EXPECT_EQ(get.status, 200);
  EXPECT_EQ(get.body, posted.body);
  EXPECT_EQ(post(server.port(), "/api/sweep", R"({"batch":[1,2,4]})").json()["points"].size(), 3u);
  EXPECT_EQ(fetch(server.port(), "/healthz").json()["status"], "ok");
  EXPECT_EQ(fetch(server.port(), "/api/openapi.json").status, 200);
}

TEST(Server, SendsStrictHeaders) {
  TestServer server;
  const Answer page = fetch(server.port(), "/");
  EXPECT_EQ(page.status, 200);
  EXPECT_NE(page.head.find("Content-Security-Policy: default-src 'none'; script-src 'self'"),
            std::string::npos);
  EXPECT_EQ(page.head.find("unsafe"), std::string::npos);
  EXPECT_NE(page.head.find("X-Content-Type-Options: nosniff"), std::string::npos);
  EXPECT_EQ(page.head.find("Access-Control-Allow-Origin"), std::string::npos);
  // HEAD says how long the page is, without the page.
  const Answer head = fetch(server.port(), "/", "", "HEAD");
  EXPECT_EQ(head.status, 200);
  EXPECT_NE(head.head.find("Content-Length: " + std::to_string(page.body.size())),
            std::string::npos);
  EXPECT_EQ(head.body, "");
}

TEST(Server, RefusesInJson) {
  TestServer server;
  const int port = server.port();
  const auto refused = [](const Answer& a, int status) {
    EXPECT_EQ(a.status, status) << a.body;
    EXPECT_TRUE(a.json()["error"].contains("message"));
  };
  refused(fetch(port, "/api/predict?batch=many"), 400);
  refused(fetch(port, "/api/predict?batch=1&batch=2"), 400);
  refused(fetch(port, "/nothing"), 404);
  refused(fetch(port, "/../../etc/passwd"), 404);
  refused(fetch(port, "/api/predict", "", "DELETE"), 405);
  refused(post(port, "/api/predict", "{"), 400);
  refused(post(port, "/api/predict", "[1]"), 400);
  refused(post(port, "/api/predict", R"({"batch":{}})"), 400);
  refused(fetch(port, "/api/predict", "", "POST", "{}"), 415);
  refused(post(port, "/api/predict", std::string(100000, ' ')), 413);
  refused(post(port, "/api/predict", std::string(30000, '[')), 400);
  refused(fetch(port, "/" + std::string(1000, 'a')), 414);
  EXPECT_EQ(fetch(port, "/api/predict?batch=many").json()["error"]["option"], "batch");
}

TEST(Server, OnLoopbackAnswersToLocalNamesOnly) {
  TestServer server;
  Connection connection(server.port());
  connection.send("GET /healthz HTTP/1.1\r\nHost: evil.example\r\n\r\n");
  EXPECT_EQ(parse_answer(connection.receive()).status, 421);
}

// A tag of a foreign page sends a GET with the browser's word of where it comes from.
TEST(Server, ApiRefusesPagesOfOtherOrigins) {
  TestServer server;
  const auto status = [&](const std::string& path, const std::string& site,
                          const std::string& method = "GET", const std::string& body = "") {
    const std::string type = body.empty() ? "" : "Content-Type: application/json\r\n";
    const Answer answer =
        fetch(server.port(), path, type + "Sec-Fetch-Site: " + site + "\r\n", method, body);
    if (answer.status == 403) {
      EXPECT_TRUE(answer.json()["error"].contains("message"));
    }
    return answer.status;
  };
  for (const char* path :
       {"/api/predict", "/api/plan?rate=1&model=llama-3-8b&machine=h100-sxm", "/api/live",
        "/api/serving", "/api/lab", "/api/openapi.json", "/api/explain/files", "/api/nothing"}) {
    for (const char* site : {"cross-site", "same-site", "something-new"}) {
      EXPECT_EQ(status(path, site), 403) << path << " " << site;
    }
    for (const char* site : {"same-origin", "none"}) {
      if (std::string_view(path).starts_with("/api/plan")) continue;  // takes a second
      EXPECT_NE(status(path, site), 403) << path << " " << site;
    }
  }
  EXPECT_EQ(status("/api/predict", "cross-site", "POST", "{}"), 403);
  EXPECT_EQ(status("/api/predict", "same-origin", "POST", "{}"), 200);
  EXPECT_EQ(status("/", "cross-site"), 200);  // a link to the page
  EXPECT_EQ(status("/healthz", "cross-site"), 200);
}

// The answer comes when the header has: the client has sent none of its 256 MiB.
TEST(Server, RefusesAWrongTypeBeforeTheBody) {
  TestServer server;
  const auto status = [&](const std::string& path, const std::string& header) {
    Connection connection(server.port());
    connection.send("POST " + path + " HTTP/1.1\r\nHost: localhost\r\n" + header + "\r\n");
    return parse_answer(connection.receive()).status;
  };
  const std::string length = "Content-Length: 200000000\r\n";
  EXPECT_EQ(status("/api/explain/files", length), 415);
  EXPECT_EQ(status("/api/explain/files", length + "Content-Type: text/plain\r\n"), 415);
  EXPECT_EQ(status("/api/explain/files",
                   "Transfer-Encoding: chunked\r\nContent-Type: application/json\r\n"),
            415);
  EXPECT_EQ(status("/api/explain/files",
                   "Content-Length: 300000000\r\nContent-Type: application/x-ridge-files\r\n"),
            413);
  EXPECT_EQ(status("/api/predict", "Content-Length: 5\r\nContent-Type: text/plain\r\n"), 415);
  EXPECT_EQ(post(server.port(), "/api/predict", R"({"batch":2})").status, 200);
  EXPECT_EQ(fetch(server.port(), "/api/predict",
                  "Content-Type: Application/JSON; charset=utf-8\r\n", "POST", "{}")
                .status,
            200);
}

TEST(Server, EndsSlowAndEndlessRequestsAndLives) {
  HttpLimits limits = patient_limits();
  limits.read = std::chrono::milliseconds(400);
  TestServer server({}, limits);
  // As many as there are threads: a byte every 50 ms, which would reset a plain read timeout.
  std::vector<std::unique_ptr<Connection>> slow;
  for (int i = 0; i < 4; ++i) slow.push_back(std::make_unique<Connection>(server.port()));
  for (auto& connection : slow) connection->send("G");
  EXPECT_EQ(fetch(server.port(), "/healthz").status, 200);
  int looks = 0;
  EXPECT_TRUE(wait_until("the server closes slow requests", [&] {
    if (++looks % 50 == 0) {
      for (auto& connection : slow) connection->send("G");
    }
    return std::ranges::all_of(slow, [](auto& connection) {
      connection->receive_now();  // the refusal
      return connection->is_closed_now();
    });
  }));
  // Headers without end: 40 MB, far more than a request may have and sockets can buffer.
  Connection endless(server.port());
  endless.send("GET / HTTP/1.1\r\n");
  bool open = true;
  for (int i = 0; i < 10'000 && open; ++i) {
    open = endless.send("X: " + std::string(4000, 'x') + "\r\n");
  }
  EXPECT_FALSE(open);
  EXPECT_EQ(fetch(server.port(), "/healthz").status, 200);
}

TEST(Server, SurvivesGarbage) {
  TestServer server;
  for (const std::string& text :
       {std::string("\r\n\r\n"), std::string("\0\1\2\3\r\n\r\n", 8), std::string("GET"),
        std::string("GET / HTTP/9.9\r\n\r\n"),
        std::string("POST / HTTP/1.1\r\nContent-Length: -5\r\n\r\n"),
        std::string("GET /%zz%00?%=&&&= HTTP/1.1\r\nHost: localhost\r\n\r\n"),
        std::string("GET /api/predict?model=%ff%fe HTTP/1.1\r\nHost: localhost\r\n\r\n")}) {
    Connection connection(server.port());
    connection.send(text);
  }
  EXPECT_EQ(fetch(server.port(), "/healthz").status, 200);
}

TEST(Server, AnswersAllRequestsOfAConnection) {
  TestServer server;
  Connection connection(server.port());
  for (int batch = 1; batch <= 50; ++batch) {
    connection.send("GET /api/predict?batch=" + std::to_string(batch) +
                    " HTTP/1.1\r\nHost: localhost\r\n\r\n");
    const Answer answer = parse_answer(connection.receive());
    ASSERT_EQ(answer.status, 200);
    EXPECT_EQ(answer.json()["decode"]["batch"], batch);
  }
  const Answer sweep = fetch(server.port(), "/api/sweep?batch=1..500");
  EXPECT_EQ(sweep.json()["points"].size(), 500u);
  EXPECT_EQ(fetch(server.port(), "/api/sweep?batch=1..501").status, 400);
  const std::string several = "/api/sweep?model=llama-3-8b&machine=8xh200&batch=1..";
  EXPECT_EQ(fetch(server.port(), several + "100").json()["points"].size(), 100u);
  EXPECT_EQ(fetch(server.port(), several + "101").status, 400);
  EXPECT_EQ(fetch(server.port(), several + "500&tp=8").json()["points"].size(), 500u);
}

// A server that is stopped before it runs must not run.
TEST(Server, StopsBeforeItRuns) {
  for (int i = 0; i < 20; ++i) TestServer server;
}

TEST(Server, AnswersAThousandAtOnce) {
  TestServer server;
  constexpr int kClients = 1000;
  std::vector<std::unique_ptr<Connection>> clients;
  for (int i = 0; i < kClients; ++i) {
    clients.push_back(std::make_unique<Connection>(server.port()));
    ASSERT_TRUE(clients.back()->connected()) << i;
  }
  for (int i = 0; i < kClients; ++i) {
    ASSERT_TRUE(clients[i]->send("GET /api/predict?batch=" + std::to_string(i % 64 + 1) +
                                 " HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"));
  }
  int good = 0;
  for (auto& client : clients) good += parse_answer(client->receive()).status == 200;
  EXPECT_EQ(good, kClients);
}

}  // namespace
}  // namespace ridge
