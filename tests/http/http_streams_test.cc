// Streams over raw sockets: clients that leave, lag or misbehave, and the end of the server.
#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <mutex>
#include <thread>
#include <vector>

#include "base/random.h"
#include "http_support.h"

namespace ridge {
namespace {

TEST(HttpStreams, StreamsInChunks) {
  Serving server([](const Exchange& exchange) {
    std::thread([exchange] {
      HttpReply head = event_stream();
      head.headers = {{"X-Request-Id", "7"}, {"X-Bad", "a\r\nSet-Cookie: b"}};
      exchange->begin_stream(head);
      for (int i = 0; i < 500; ++i) EXPECT_TRUE(exchange->write(std::to_string(i) + "\n"));
      exchange->end();
      EXPECT_FALSE(exchange->write("late"));
    }).detach();
  });
  std::string expected;
  for (int i = 0; i < 500; ++i) expected += std::to_string(i) + "\n";
  Connection client(server.port());
  for (int round = 0; round < 3; ++round) {  // on one connection
    client.send(get("/"));
    const Answer answer = parse_answer(client.receive_until("\r\n0\r\n\r\n"));
    EXPECT_NE(answer.head.find("Transfer-Encoding: chunked"), std::string::npos);
    EXPECT_NE(answer.head.find("X-Request-Id: 7"), std::string::npos);
    EXPECT_EQ(answer.head.find("Set-Cookie"), std::string::npos);
    EXPECT_NE(answer.head.find("X-Content-Type-Options: nosniff"), std::string::npos);
    EXPECT_EQ(dechunked(answer.body), expected);
  }
  Connection old(server.port());  // HTTP/1.0 has no chunks: the end of the connection is the end
  old.send("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
  const Answer answer = parse_answer(old.receive_all());
  EXPECT_EQ(answer.body, expected);
  EXPECT_EQ(answer.head.find("chunked"), std::string::npos);
  Connection head(server.port());
  head.send("HEAD / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
  EXPECT_TRUE(head.receive_all().ends_with("\r\n\r\n"));
}

TEST(HttpStreams, SendsTogetherWhatIsQueuedTogether) {
  Serving server([](const Exchange& exchange) {  // on the I/O thread, which therefore cannot send
    exchange->begin_stream(event_stream());
    for (int i = 0; i < 100; ++i) exchange->write("x");
    exchange->end();
  });
  Connection client(server.port());
  client.send(get("/health"));
  const std::string body = parse_answer(client.receive_until("0\r\n\r\n")).body;
  EXPECT_EQ(body, "64\r\n" + std::string(100, 'x') + "\r\n0\r\n\r\n");
}

TEST(HttpStreams, AnExchangeWithoutAnswerIs500) {
  Serving server([](const Exchange& exchange) {
    if (exchange->request().path == "/stream") {
      exchange->begin_stream(event_stream());
      exchange->write("half");
    }
  });
  Connection client(server.port());
  for (int i = 0; i < 2; ++i) {
    client.send(get("/"));
    EXPECT_EQ(parse_answer(client.receive()).status, 500);
  }
  client.send(get("/stream"));
  EXPECT_EQ(dechunked(parse_answer(client.receive_all()).body), std::nullopt);
}

// In each phase of an answer, and however the client goes, the handler hears of it: not from a
// limit, as there is none.
TEST(HttpStreams, NoticesThatTheClientIsGone) {
  for (const bool reset : {false, true}) {
    for (const std::string phase : {"/waiting", "/silent", "/streaming"}) {
      SCOPED_TRACE(phase + (reset ? ", reset" : ", closed"));
      Event started, gone, writer_done;
      Exchange kept;
      HttpLimits limits = patient_limits();
      limits.half_closed = 0ms;
      {
        Serving server(
            [&](const Exchange& exchange) {
              exchange->on_closed([&] { gone.set(); });
              kept = exchange;
              if (phase != "/waiting") exchange->begin_stream(event_stream());
              if (phase != "/streaming") return started.set();
              while (exchange->write("token\n")) {
                started.set();
                std::this_thread::sleep_for(1ms);
              }
              writer_done.set();
            },
            limits);
        auto client = std::make_unique<Connection>(server.port());
        client->send(get("/"));
        ASSERT_TRUE(started.wait());
        if (phase != "/waiting") client->receive_until("\r\n\r\n");
        EXPECT_FALSE(gone.is_set());
        if (reset) client->reset_on_close();
        client.reset();
        EXPECT_TRUE(gone.wait());
        if (phase == "/streaming") {
          EXPECT_TRUE(writer_done.wait());
        }
        EXPECT_TRUE(kept->closed());
        EXPECT_FALSE(kept->write("x"));
        Event at_once;
        kept->on_closed([&] { at_once.set(); });
        EXPECT_TRUE(at_once.is_set());
        say(kept, "late");  // to nobody
      }
      kept->write("x");  // the server is gone too
      kept->end();
    }
  }
}

// A client that has closed its sending side waits for its answer. It is asked once whether it is
// there, in a way that any client skips.
TEST(HttpStreams, AnswersHalfClosedClients) {
  Event go_on, probed;
  HttpLimits limits = patient_limits();
  limits.half_closed = 0ms;
  Serving server(
      [&](const Exchange& exchange) {
        exchange->on_closed([] { ADD_FAILURE() << "the client is there"; });
        std::thread([&go_on, exchange] {
          const bool streams = exchange->request().path == "/stream";
          if (streams) exchange->begin_stream(event_stream());
          EXPECT_TRUE(go_on.wait());
          if (!streams) return say(exchange, "whole");
          EXPECT_TRUE(exchange->write("data: x\n\n"));
          exchange->end();
        }).detach();
      },
      limits);
  Connection plain(server.port()), stream(server.port());
  plain.send(get("/plain"));
  stream.send(get("/stream"));
  plain.end_sending();
  stream.receive_until("\r\n\r\n");
  stream.end_sending();
  const std::string asked = plain.receive_until("\r\n\r\n");
  EXPECT_TRUE(asked.starts_with("HTTP/1.1 100 "));
  const std::string comment = stream.receive_until(":\n\n\r\n");
  EXPECT_EQ(comment, "3\r\n:\n\n\r\n");
  go_on.set();
  EXPECT_EQ(parse_answer(plain.receive_all()).body, "whole");
  EXPECT_EQ(dechunked(stream.receive_all()), "data: x\n\n");
}

// HTTP/1.0 has nothing that a client would skip: the handler is told, and may answer all the same.
TEST(HttpStreams, AnOldHalfClosedClientMayStillBeAnswered) {
  Event gone;
  Serving server([&](const Exchange& exchange) {
    std::thread([&gone, exchange] {
      exchange->on_closed([&gone] { gone.set(); });
      EXPECT_TRUE(gone.wait());
      EXPECT_TRUE(exchange->closed());
      say(exchange, "late");
    }).detach();
  });
  Connection client(server.port());
  client.send("GET / HTTP/1.0\r\n\r\n");
  client.end_sending();
  EXPECT_EQ(parse_answer(client.receive_all()).body, "late");
}

TEST(HttpStreams, DropsSlowReadersWhileOthersGoOn) {
  std::mutex mutex;
  std::vector<Exchange> streams;
  std::atomic<int> closed = 0;
  HttpLimits limits = patient_limits();
  limits.unsent_bytes = 256 << 10;  // and no other limit: to wait for the slow one were to hang
  Serving server(
      [&](const Exchange& exchange) {
        exchange->begin_stream(event_stream());
        exchange->on_closed([&] { ++closed; });
        const std::lock_guard lock(mutex);
        streams.push_back(exchange);
      },
      limits);
  Connection slow(server.port(), 4096), good(server.port());
  slow.send(get("/slow"));
  good.send(get("/good", "Connection: close\r\n"));
  ASSERT_TRUE(wait_until("both streams", [&] {
    const std::lock_guard lock(mutex);
    return streams.size() == 2;
  }));
  std::atomic<size_t> received = 0;
  std::future<std::string> read = std::async(std::launch::async, [&] {
    std::string all;
    for (std::string part; !(part = good.receive_some(1 << 16)).empty(); received = all.size()) {
      all += part;
    }
    return all;
  });
  const std::string piece(1000, 'p');
  size_t accepted = 0;
  std::string expected;
  for (int i = 0; i < 3000; ++i) {
    for (const Exchange& stream : streams) {
      const bool taken = stream->write(piece);
      if (stream->request().path == "/slow") {
        accepted += taken ? piece.size() : 0;
      } else {
        ASSERT_TRUE(taken) << i;
        expected += piece;
      }
    }
    if (i % 100 < 99) continue;
    ASSERT_TRUE(wait_until("the good client follows", [&] { return received >= expected.size(); }));
  }
  for (const Exchange& stream : streams) stream->end();
  EXPECT_TRUE(dechunked(parse_answer(read.get()).body) == expected);
  EXPECT_TRUE(wait_until("the slow client is dropped", [&] { return closed > 0; }));
  EXPECT_EQ(closed, 1);
  // The bound, what the kernel holds for sender and receiver, and the last write.
  EXPECT_LT(accepted, limits.unsent_bytes + (1 << 20));
  EXPECT_FALSE(dechunked(parse_answer(slow.receive_all()).body));
}

TEST(HttpStreams, DropsReadersThatTakeNothing) {
  const auto say_much = [](const Exchange& exchange) {
    say(exchange, std::string(exchange->request().path == "/much" ? 16 << 20 : 1, 'x'));
  };
  HttpLimits limits = patient_limits();
  limits.stall = 300ms;
  limits.connections = 1;
  Serving server(say_much, limits);
  Connection client(server.port(), 4096);
  client.send(get("/much"));
  EXPECT_TRUE(client.receive_until("\r\n\r\n").starts_with("HTTP/1.1 200"));
  EXPECT_TRUE(wait_until("its place is free",
                         [&] { return fetch(server.port(), "/little").status == 200; }));
  EXPECT_LT(client.receive_all().size(), 16u << 20);
  Serving patient(say_much);  // one that reads gets all
  Connection steady(patient.port());
  steady.send(get("/much"));
  EXPECT_EQ(parse_answer(steady.receive()).body.size(), 16u << 20);
}

TEST(HttpStreams, AnswersHealthAmongAThousandStreams) {
  constexpr int kStreams = 1000;
  std::mutex mutex;
  std::vector<Exchange> streams;
  Serving server([&](const Exchange& exchange) {
    if (exchange->request().path == "/health") return echo(exchange);
    exchange->begin_stream(event_stream());
    const std::lock_guard lock(mutex);
    streams.push_back(exchange);
  });
  std::vector<std::unique_ptr<Connection>> clients;
  for (int i = 0; i < kStreams; ++i) {
    clients.push_back(std::make_unique<Connection>(server.port()));
    ASSERT_TRUE(clients.back()->connected()) << i;
    ASSERT_TRUE(clients.back()->send(get("/stream", "Connection: close\r\n"))) << i;
  }
  ASSERT_TRUE(wait_until("all streams", [&] {
    const std::lock_guard lock(mutex);
    return streams.size() == kStreams;
  }));
  // At most 20 tokens a second for each stream.
  std::atomic<bool> done = false;
  std::thread engine([&] {
    while (!done) {
      for (const Exchange& stream : streams) EXPECT_TRUE(stream->write("data: token\n\n"));
      std::this_thread::sleep_for(50ms);
    }
    for (const Exchange& stream : streams) stream->end();
  });
  for (int i = 0; i < 50; ++i) {  // while the streams go on
    Connection client(server.port());
    client.send(get("/health"));
    EXPECT_EQ(parse_answer(client.receive()).status, 200);
  }
  done = true;
  engine.join();
  std::optional<std::string> first;
  for (auto& client : clients) {
    const auto body = dechunked(parse_answer(client->receive_all()).body);
    ASSERT_TRUE(body);
    if (!first) first = body;
    ASSERT_EQ(body, first);
  }
}

TEST(HttpStreams, DrainsBeforeItEnds) {
  std::atomic<int> closed = 0;
  Event begun, go_on;
  Serving server([&](const Exchange& exchange) {
    if (exchange->request().path != "/stream") return echo(exchange);
    exchange->on_closed([&] { ++closed; });
    std::thread([exchange, &begun, &go_on] {
      exchange->begin_stream(event_stream());
      exchange->write("s");
      begun.set();
      EXPECT_TRUE(go_on.wait());
      for (int i = 1; i < 20; ++i) exchange->write("s");
      exchange->end();
    }).detach();
  });
  Connection idle(server.port()), stream(server.port()), late(server.port());
  idle.send(get("/"));
  EXPECT_EQ(parse_answer(idle.receive()).status, 200);
  late.send(get("/first") + "GET /late HTTP/1.1\r\n");  // the rest follows
  EXPECT_EQ(parse_answer(late.receive()).body, "GET /first ");
  stream.send(get("/stream") + get("/never"));
  ASSERT_TRUE(begun.wait());
  (*server).drain(kNever);
  EXPECT_TRUE(idle.is_closed_by_peer());
  EXPECT_TRUE(Connection(server.port()).is_closed_by_peer() ||
              !Connection(server.port()).connected());
  late.send("Host: x\r\n\r\n");
  const Answer answer = parse_answer(late.receive_all());
  EXPECT_EQ(answer.body, "GET /late ");
  EXPECT_NE(answer.head.find("Connection: close"), std::string::npos);
  go_on.set();
  EXPECT_EQ(dechunked(parse_answer(stream.receive_all()).body), std::string(20, 's'));
  server.join();
  EXPECT_EQ(closed, 0);
}

TEST(HttpStreams, DrainEndsAtItsLimit) {
  Exchange kept;
  Event begun, gone;
  Serving server([&](const Exchange& exchange) {
    exchange->begin_stream(event_stream());
    exchange->on_closed([&] { gone.set(); });
    kept = exchange;
    begun.set();
  });
  Connection client(server.port());
  client.send(get("/"));
  ASSERT_TRUE(begun.wait());
  const auto start = Clock::now();
  (*server).drain(200ms);
  server.join();
  EXPECT_GE(milliseconds_since(start), 199);
  EXPECT_TRUE(gone.is_set());
  EXPECT_FALSE(kept->write("x"));
}

TEST(HttpStreams, StopsAtOnceDuringStreams) {
  std::atomic<int> begun = 0, closed = 0, writers = 0;
  auto server = std::make_unique<Serving>([&](const Exchange& exchange) {
    exchange->on_closed([&] { ++closed; });
    ++writers;
    std::thread([exchange, &begun, &writers] {
      exchange->begin_stream(event_stream());
      ++begun;
      while (exchange->write("token")) std::this_thread::sleep_for(1ms);
      exchange->end();
      --writers;
    }).detach();
  });
  std::vector<std::unique_ptr<Connection>> clients;
  for (int i = 0; i < 50; ++i) {
    clients.push_back(std::make_unique<Connection>(server->port()));
    clients.back()->send(get("/"));
  }
  ASSERT_TRUE(wait_until("all streams", [&] { return begun == 50; }));
  server.reset();
  EXPECT_EQ(closed, 50);
  for (auto& client : clients) EXPECT_TRUE(client->is_closed_by_peer());
  ASSERT_TRUE(wait_until("the end of the writers", [&] { return writers == 0; }));
}

// Clients that do anything, for a while: no exchange is lost, and the server still answers.
TEST(HttpStreams, OutlivesUnrulyClients) {
  std::atomic<int> open = 0;
  struct Counted {
    explicit Counted(std::atomic<int>& count) : count_(count) { ++count_; }
    ~Counted() { --count_; }
    std::atomic<int>& count_;
  };
  HttpLimits limits = patient_limits();
  limits.unsent_bytes = 32 << 10;
  limits.read = limits.idle = 100ms;
  Serving server(
      [&](const Exchange& exchange) {
        auto counted = std::make_shared<Counted>(open);
        if (exchange->request().path == "/health") return echo(exchange);
        if (exchange->request().path == "/big") return say(exchange, std::string(300'000, 'b'));
        exchange->on_closed([counted] {});
        std::thread([exchange, counted] {
          exchange->begin_stream(event_stream());
          for (int i = 0; i < 30 && exchange->write(std::string(5000, 'x')); ++i) {
            std::this_thread::sleep_for(1ms);
          }
          if (exchange->request().path == "/stream") exchange->end();
        }).detach();
      },
      limits);
  std::vector<std::thread> threads;
  for (uint64_t seed = 0; seed < 8; ++seed) {
    threads.emplace_back([&, seed] {
      SplitMix64 words(seed);
      const auto below = [&](uint64_t limit) { return words.next() % limit; };
      for (int i = 0; i < 40; ++i) {
        Connection client(server.port(), below(2) == 0 ? 4096 : 0);
        for (uint64_t requests = below(3); requests < 3; ++requests) {
          const uint64_t kind = below(8);
          if (kind == 0) client.send("\1garbage\r\n\r\n");
          if (kind == 1)
            client.send("POST /v1/x HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nab");
          if (kind == 2) client.send(get("/big"));
          if (kind == 3) client.send(get("/cut"));
          if (kind >= 4) client.send(get("/stream"));
        }
        std::this_thread::sleep_for(std::chrono::microseconds(below(20'000)));
        const uint64_t end = below(4);
        if (end == 0) client.receive_until("\r\n\r\n");
        if (end == 1) client.reset_on_close();
        if (end == 2) client.end_sending();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  // A client that says nothing for 100 ms is not waited for: this one may be as slow.
  EXPECT_TRUE(wait_until("the server answers", [&] {
    Connection client(server.port());
    client.send(get("/health"));
    return parse_answer(client.receive()).status == 200;
  }));
  EXPECT_TRUE(wait_until("no exchange is left", [&] { return open == 0; }));
}

}  // namespace
}  // namespace ridge
