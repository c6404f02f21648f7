// The asynchronous server over raw sockets: the protocol and its limits.
#include "http/http.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <utility>
#include <vector>

#include "base/error.h"
#include "http_support.h"

namespace ridge {
namespace {

TEST(Http, AnswersEveryKindOfClient) {
  Serving server(echo);
  {
    Connection old(server.port());  // HTTP/1.0 without keep-alive: the connection ends
    old.send("GET /a HTTP/1.0\r\n\r\n");
    const Answer answer = parse_answer(old.receive_all());
    EXPECT_EQ(answer.body, "GET /a ");
    EXPECT_NE(answer.head.find("Connection: close"), std::string::npos);
  }
  {
    Connection old(server.port());
    for (int i = 0; i < 3; ++i) {
      old.send("GET /a HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
      const Answer answer = parse_answer(old.receive());
      EXPECT_EQ(answer.body, "GET /a ");
      EXPECT_NE(answer.head.find("Connection: keep-alive"), std::string::npos);
    }
  }
  {
    Connection head(server.port());  // the second answer follows directly: there is no body
    head.send("HEAD /abc HTTP/1.1\r\nHost: x\r\n\r\n" + get("/d"));
    const std::string first = head.receive_until("\r\n\r\n");
    EXPECT_NE(first.find("Content-Length: 10"), std::string::npos);
    EXPECT_EQ(parse_answer(head.receive()).body, "GET /d ");
  }
  {
    Connection closing(server.port());
    closing.send(get("/a", "Connection: close\r\n") + get("/b"));
    EXPECT_EQ(parse_answer(closing.receive_all()).body, "GET /a ");
  }
  {
    Connection absolute(server.port());
    absolute.send("\r\n\r\nGET http://there:80/a%20b?x=1 HTTP/1.1\r\nHost: here\r\n\r\n");
    EXPECT_EQ(parse_answer(absolute.receive()).body, "GET /a b ");
  }
  {
    Connection chunks(server.port());  // byte by byte, with an extension and a trailer
    for (const char c : std::string("POST /v1/x HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: "
                                    "chunked\r\n\r\n3;a=b\r\nabc\r\nA\r\n0123456789\r\n"
                                    "0\r\nAuthorization: evil\r\n\r\n")) {
      ASSERT_TRUE(chunks.send({&c, 1}));
    }
    EXPECT_EQ(parse_answer(chunks.receive()).body, "POST /v1/x abc0123456789");
  }
}

TEST(Http, SaysContinueToWhoWaitsForIt) {
  Serving server(echo);
  Connection client(server.port());
  client.send(
      "POST /v1/x HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\n");
  EXPECT_EQ(client.receive_until("\r\n\r\n"), "HTTP/1.1 100 Continue\r\n\r\n");
  client.send("abc");
  EXPECT_EQ(parse_answer(client.receive()).body, "POST /v1/x abc");
  // With the body at once there is nothing to wait for.
  client.send(
      "POST /v1/x HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nExpect: 100-continue\r\n\r\nz");
  EXPECT_EQ(parse_answer(client.receive()).status, 200);
  client.send(
      "POST /v1/x HTTP/1.1\r\nHost: x\r\nContent-Length: 9000000\r\nExpect: 100-continue\r\n\r\n");
  EXPECT_EQ(parse_answer(client.receive()).status, 413);
}

TEST(Http, RefusesInJson) {
  HttpLimits limits = patient_limits();
  limits.read = 300ms;
  Serving server(echo), hasty(echo, limits);
  const auto refusal = [&](const std::string& text, bool unfinished = false) {
    Connection client(unfinished ? hasty.port() : server.port());
    client.send(text);
    const Answer answer = parse_answer(client.receive_all());  // and the connection is closed
    EXPECT_TRUE(answer.status == 0 || answer.json()["error"].contains("message")) << text;
    return answer.status;
  };
  const std::string post = "POST /v1/x HTTP/1.1\r\nHost: x\r\n";
  EXPECT_EQ(refusal("nonsense\r\n\r\n"), 400);
  EXPECT_EQ(refusal("GET / HTTP/9.9\r\nHost: x\r\n\r\n"), 400);
  EXPECT_EQ(refusal("GET / HTTP/1.1\r\n\r\n"), 400);  // no Host
  EXPECT_EQ(refusal("GET / HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n"), 400);
  EXPECT_EQ(refusal("GET x HTTP/1.1\r\nHost: x\r\n\r\n"), 400);
  EXPECT_EQ(refusal(post + "Content-Length: -5\r\n\r\n"), 400);
  EXPECT_EQ(refusal(post + "Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello!"), 400);
  EXPECT_EQ(refusal(post + "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\nhello"), 400);
  EXPECT_EQ(refusal(post + "Transfer-Encoding: chunked\r\n\r\nxyz\r\n\r\n"), 400);
  EXPECT_EQ(refusal(post + "Transfer-Encoding: gzip\r\n\r\nGET / HTTP/1.1\r\n\r\n"), 501);
  EXPECT_EQ(refusal(post + "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n"), 501);
  EXPECT_EQ(refusal(post + "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n"),
            400);
  EXPECT_EQ(refusal("POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"), 400);
  EXPECT_EQ(refusal(post + "Expect: miracles\r\nContent-Length: 1\r\n\r\n"), 417);
  EXPECT_EQ(refusal(post + "Content-Length: 8388609\r\n\r\n"), 413);
  EXPECT_EQ(refusal(post + "Transfer-Encoding: chunked\r\n\r\n800001\r\n"), 413);
  EXPECT_EQ(refusal("POST /api/x HTTP/1.1\r\nHost: x\r\nContent-Length: 65537\r\n\r\n"), 413);
  EXPECT_EQ(refusal(get("/" + std::string(300, 'a'))), 414);
  EXPECT_EQ(refusal(get("/", "X: " + std::string(40'000, 'x') + "\r\n")), 431);
  EXPECT_EQ(refusal(post + "Transfer-Encoding: chunked\r\n\r\n1;" + std::string(40'000, 'x')), 431);
  EXPECT_EQ(refusal(post + "Content-Length: 5\r\n\r\nhell", true), 408);
  EXPECT_EQ(refusal("GET /", true), 408);
  // The largest body allowed is served.
  const std::string body(8 << 20, 'b');
  Connection client(server.port());
  client.send(post + "Content-Length: 8388608\r\n\r\n" + body);
  EXPECT_TRUE(parse_answer(client.receive()).body == "POST /v1/x " + body);
}

// Headers that come line by line, each in a packet of its own, have a limit together.
TEST(Http, EndsHeadersWithoutEnd) {
  Serving server(echo);
  Connection client(server.port());
  client.send_at_once();
  client.send("GET / HTTP/1.1\r\n");
  bool open = true;
  for (int i = 0; i < 2000 && open; ++i) {
    open = client.send("X: " + std::string(40, 'x') + "\r\n");
  }
  EXPECT_EQ(parse_answer(client.receive_all()).status, 431);
}

TEST(Http, LimitsRequestsOfAConnection) {
  HttpLimits limits = patient_limits();
  limits.requests_per_connection = 3;
  Serving server(echo, limits);
  Connection client(server.port());
  client.send(get("/1") + get("/2") + get("/3") + get("/4"));
  const std::string all = client.receive_all();
  EXPECT_NE(all.find("GET /3"), std::string::npos);
  EXPECT_EQ(all.find("GET /4"), std::string::npos);
  limits.idle = 300ms;
  Serving hasty(echo, limits);
  Connection idle(hasty.port());
  idle.send(get("/"));
  EXPECT_EQ(parse_answer(idle.receive()).status, 200);
  EXPECT_TRUE(idle.is_closed_by_peer());
}

// The limits of all connections and of one client's behave alike for one client.
void fill_places(const HttpLimits& given) {
  HttpLimits limits = given;
  limits.reserved_connections = 2;
  limits.reserve = [](const HttpRequest& request) { return request.path == "/health"; };
  Event go_on;
  std::atomic<int> answering = 0;
  Serving server(
      [&](const Exchange& exchange) {
        if (exchange->request().path == "/long") {
          ++answering;
          EXPECT_TRUE(go_on.wait());
        }
        echo(exchange);
      },
      limits);
  // One is idle, one dribbles its header, one its body.
  std::vector<std::unique_ptr<Connection>> clients;
  for (const std::string begun :
       {"", "GET / HT", "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nab"}) {
    clients.push_back(std::make_unique<Connection>(server.port()));
    clients.back()->send(get("/begun"));
    ASSERT_EQ(parse_answer(clients.back()->receive()).status, 200);
    clients.back()->send(begun);
  }
  // Those who come are let in, each for the one that has waited longest.
  std::vector<std::unique_ptr<Connection>> busy;
  for (size_t i = 0; i < clients.size(); ++i) {
    busy.push_back(std::make_unique<Connection>(server.port()));
    busy.back()->send(get("/long"));
    EXPECT_TRUE(clients[i]->is_closed_by_peer());
    EXPECT_TRUE(wait_until("it is answered", [&] { return answering == int(i) + 1; }));
  }
  // Now all are answered: there are only reserved places, for health.
  for (int i = 0; i < 10; ++i) {
    const Answer refused = fetch(server.port(), "/");
    EXPECT_EQ(refused.status, 503);
    EXPECT_NE(refused.head.find("Retry-After: 1"), std::string::npos);
    EXPECT_EQ(fetch(server.port(), "/health").status, 200);
  }
  // Who holds reserved places without a request loses them to the next.
  std::vector<std::unique_ptr<Connection>> silent;
  for (int i = 0; i < 10; ++i) {
    silent.push_back(std::make_unique<Connection>(server.port()));
    silent.back()->send("GET /heal");
    EXPECT_EQ(fetch(server.port(), "/health").status, 200);
  }
  go_on.set();
  for (auto& client : busy) EXPECT_EQ(parse_answer(client->receive()).status, 200);
  EXPECT_TRUE(
      wait_until("there is room again", [&] { return fetch(server.port(), "/").status == 200; }));
}

TEST(Http, AFullServerGivesThePlacesOfThoseWhoWait) {
  HttpLimits limits = patient_limits();
  limits.connections = 3;
  fill_places(limits);
}

TEST(Http, AClientsPlacesAreLimited) {
  HttpLimits limits = patient_limits();
  limits.connections_per_client = 3;
  fill_places(limits);
}

// A header or a body that dribbles is given up, a body that comes in time is not.
TEST(Http, GivesUpSlowHeadersAndBodies) {
  const std::string post = "POST /v1/x HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n";
  const auto status = [&](const HttpLimits& limits, const std::string& text) {
    Serving server(echo, limits);
    Connection client(server.port());
    client.send(text);
    return parse_answer(client.receive_all()).status;
  };
  HttpLimits header = patient_limits();
  header.header = 100ms;
  EXPECT_EQ(status(header, "GET / HTTP/1.1\r\n"), 408);
  HttpLimits whole = patient_limits();
  whole.read = 100ms;
  EXPECT_EQ(status(whole, post), 408);
  HttpLimits rate = patient_limits();
  rate.body_grace = 100ms;
  rate.body_rate = 1 << 30;
  EXPECT_EQ(status(rate, post + "ab"), 408);
  rate.body_rate = 1;  // 90,000 bytes last for a day
  rate.header = 200ms;
  Serving server(echo, rate);
  Connection client(server.port());
  client.send(post + std::string(90'000, 'x'));
  // Later than the grace the server looks at all connections, and gives up another one.
  Connection header_only(server.port());
  header_only.send("GET / HTTP/1.1\r\n");
  EXPECT_EQ(parse_answer(header_only.receive_all()).status, 408);
  EXPECT_FALSE(client.is_closed_now());
  client.send(std::string(10'000, 'x'));
  EXPECT_EQ(parse_answer(client.receive()).status, 200);
}

// Bodies count together from their first byte until they are read.
TEST(Http, BodiesHaveABudget) {
  HttpLimits limits = patient_limits();
  limits.all_body_bytes = 2900;
  limits.free_body_bytes = 100;
  Event go_on, read_it;
  Exchange held;
  Serving server(
      [&](const Exchange& exchange) {
        if (exchange->request().path == "/held") {
          held = exchange;
          return read_it.set();
        }
        echo(exchange);
      },
      limits);
  const auto post = [](const std::string& path, size_t bytes) {
    return "POST " + path + " HTTP/1.1\r\nHost: x\r\nContent-Length: " + std::to_string(bytes) +
           "\r\n\r\n";
  };
  const auto status = [&](size_t bytes) {
    Connection client(server.port());
    client.send(post("/", bytes) + std::string(bytes, 'x'));
    return parse_answer(client.receive()).status;
  };
  EXPECT_EQ(status(3000), 200);
  EXPECT_EQ(status(3001), 503);
  Connection first(server.port());
  first.send(post("/held", 2000) + std::string(2000, 'x'));
  ASSERT_TRUE(read_it.wait());
  EXPECT_EQ(status(1100), 200);
  EXPECT_EQ(status(1101), 503);
  // Without a length the bytes count as they come.
  Connection chunked(server.port());
  chunked.send("POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n");
  for (int i = 0; i < 4; ++i) chunked.send("1f4\r\n" + std::string(500, 'x') + "\r\n");
  const Answer refused = parse_answer(chunked.receive_all());
  EXPECT_EQ(refused.status, 503);
  EXPECT_NE(refused.head.find("Retry-After: "), std::string::npos);
  held->release_body();
  EXPECT_EQ(held->request().body, "");
  EXPECT_EQ(status(3000), 200);
  say(std::exchange(held, nullptr), "done");
  EXPECT_EQ(parse_answer(first.receive()).status, 200);
}

// A lane that is full refuses; other lanes go on.
TEST(Http, LanesDoNotWaitForEachOther) {
  HttpLimits limits = patient_limits();
  limits.lanes = {{.threads = 1, .waiting = 2}, {.threads = 1, .niceness = 10}};
  limits.lane = [](const HttpRequest& request) { return request.path == "/other" ? 1 : 0; };
  Event go_on, begun;
  HttpServer server(
      [&](const Exchange& exchange) {
        if (exchange->request().path == "/long") {
          begun.set();
          EXPECT_TRUE(go_on.wait());
        }
        echo(exchange);
      },
      limits);
  const int port = server.bind("127.0.0.1", 0);
  std::thread serving([&] { server.run(); });
  std::vector<std::unique_ptr<Connection>> waiting;
  const auto ask = [&](const std::string& path) {
    waiting.push_back(std::make_unique<Connection>(port));
    waiting.back()->send(get(path));
  };
  ask("/long");
  EXPECT_TRUE(begun.wait());
  Connection client(port);
  ask("/1");
  ask("/2");
  // The sockets are read in any order: at the latest when both wait, a third is refused.
  Answer refused;
  EXPECT_TRUE(wait_until("the lane is full", [&] {
    waiting.push_back(std::make_unique<Connection>(port));
    waiting.back()->send(get("/3"));
    refused = fetch(port, "/other");
    EXPECT_EQ(refused.status, 200);
    for (const auto& one : waiting) {
      if (one->has_answer_now()) return true;
    }
    return false;
  }));
  go_on.set();
  int refusals = 0;
  for (const auto& one : waiting) {
    const int status = parse_answer(one->receive()).status;
    EXPECT_TRUE(status == 200 || status == 503);
    refusals += status == 503;
  }
  EXPECT_GE(refusals, 1);
  server.stop();
  serving.join();
}

TEST(Http, AnswersPipelinedRequestsInOrder) {
  std::atomic<int> closed = 0;
  Event pipelined;
  Serving server([&](const Exchange& exchange) {
    exchange->on_closed([&] { ++closed; });
    if (exchange->request().path != "/stream") return echo(exchange);
    std::thread([exchange, &pipelined] {
      exchange->begin_stream(event_stream());
      exchange->write("s");
      EXPECT_TRUE(pipelined.wait());
      for (int i = 1; i < 5; ++i) {
        std::this_thread::sleep_for(20ms);  // the order is the same whatever arrives meanwhile
        exchange->write("s");
      }
      exchange->end();
    }).detach();
  });
  Connection client(server.port());
  client.send(get("/stream") + get("/1"));
  client.receive_until("\r\n\r\n");
  client.send(get("/2") + "POST /v1/3 HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nab");
  pipelined.set();
  EXPECT_EQ(dechunked(client.receive_until("\r\n0\r\n\r\n")), "sssss");
  client.receive_until("\r\n\r\n");
  EXPECT_EQ(client.receive_until("GET /1 "), "GET /1 ");
  client.receive_until("\r\n\r\n");
  EXPECT_EQ(client.receive_until("GET /2 "), "GET /2 ");
  client.send("c" + get("/4", "Connection: close\r\n"));
  client.receive_until("\r\n\r\n");
  EXPECT_EQ(client.receive_until("POST /v1/3 abc"), "POST /v1/3 abc");
  EXPECT_EQ(parse_answer(client.receive_all()).body, "GET /4 ");
  EXPECT_EQ(closed, 0);
  // More than the server keeps: it stops reading until the answer has ended, and loses nothing.
  std::string many = get("/stream");
  for (int i = 0; i < 900; ++i) many += get("/many", "X: " + std::string(300, 'x') + "\r\n");
  Connection eager(server.port());
  std::thread sender([&] { eager.send(many + get("/last", "Connection: close\r\n")); });
  const std::string all = eager.receive_all();
  sender.join();
  EXPECT_TRUE(all.ends_with("GET /last "));
}

TEST(Http, OnlyTheFirstAnswerCounts) {
  Serving server([](const Exchange& exchange) {
    EXPECT_FALSE(exchange->write("too early"));
    exchange->end();
    say(exchange, "first");
    say(exchange, "second");
    exchange->begin_stream(event_stream());
    EXPECT_FALSE(exchange->write("no stream"));
    exchange->end();
  });
  Connection client(server.port());
  for (int i = 0; i < 3; ++i) {
    client.send(get("/"));
    EXPECT_EQ(parse_answer(client.receive()).body, "first");
  }
}

// netcat and others close their sending side right after their requests.
TEST(Http, AnswersPipelinesOfHalfClosedClients) {
  Serving server(echo);
  Connection client(server.port());
  client.send(get("/1") + get("/2") + "GET /3 HT");
  client.end_sending();
  const std::string all = client.receive_all();
  EXPECT_NE(all.find("GET /1 "), std::string::npos);
  EXPECT_TRUE(all.ends_with("GET /2 "));
}

TEST(Http, LongHandlersDoNotDelayQuickOnes) {
  HttpLimits limits = patient_limits();
  limits.lanes = {{.threads = 2}};
  Event go_on;
  std::atomic<int> waiting = 0;
  Serving server(
      [&](const Exchange& exchange) {
        if (exchange->request().path != "/health") {
          ++waiting;
          EXPECT_TRUE(go_on.wait());
        }
        echo(exchange);
      },
      limits);
  std::vector<std::unique_ptr<Connection>> busy;
  for (int i = 0; i < 4; ++i) {
    busy.push_back(std::make_unique<Connection>(server.port()));
    busy[i]->send(get("/tokenize"));
  }
  EXPECT_TRUE(wait_until("all threads are in a handler", [&] { return waiting == 2; }));
  Connection client(server.port());
  for (int i = 0; i < 10; ++i) {
    client.send(get("/health"));
    EXPECT_EQ(parse_answer(client.receive()).status, 200);
  }
  go_on.set();
  for (auto& connection : busy) EXPECT_EQ(parse_answer(connection->receive()).status, 200);
}

TEST(Http, ListensOnAddressesAndNames) {
  const auto bound = [](const std::string& host, int port) {
    HttpServer server(echo, {});
    return server.bind(host, port);
  };
  for (const std::string host : {"127.0.0.1", "localhost", "0.0.0.0"}) EXPECT_GT(bound(host, 0), 0);
  EXPECT_THROW(bound("192.0.2.1", 0), Error);  // an address of nobody
  EXPECT_THROW(bound("no-such-name.invalid", 0), Error);
  EXPECT_THROW(bound("", 70000), Error);
  Serving server(echo);
  EXPECT_THROW(bound("127.0.0.1", server.port()), Error);
  const int socket = ::socket(AF_INET6, SOCK_STREAM, 0);
  sockaddr_in6 loopback{};
  loopback.sin6_family = AF_INET6;
  loopback.sin6_addr = in6addr_loopback;
  if (::bind(socket, reinterpret_cast<sockaddr*>(&loopback), sizeof loopback) == 0) {
    for (const std::string host : {"::1", "[::1]", "::"}) EXPECT_GT(bound(host, 0), 0);
  }
  ::close(socket);
}

}  // namespace
}  // namespace ridge
