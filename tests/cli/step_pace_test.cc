// ridge serve --step-pace stdin: a test holds the server's steps and lets them go, by events alone.
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>
#include <thread>
#include <vector>

#include "base/wait_until.h"
#include "http/sockets.h"

namespace ridge {
namespace {

// A server with its input and its output; both streams of output are one.
class PacedServer {
 public:
  explicit PacedServer(const std::string& pace, const char* drain_s = "30") {
    int in[2], out[2];
    if (pipe(in) != 0 || pipe(out) != 0) return;
    process_ = fork();
    if (process_ == 0) {
      dup2(in[0], STDIN_FILENO);
      dup2(out[1], STDOUT_FILENO);
      dup2(out[1], STDERR_FILENO);
      for (const int end : {in[0], in[1], out[0], out[1]}) close(end);
      execl(RIDGE_BINARY, RIDGE_BINARY, "serve", "ridge-1m", "--port", "0", "-t", "1",
            "--kv-tokens", "4096", "--drain", drain_s, "--step-pace", pace.c_str(), nullptr);
      _exit(127);
    }
    close(in[0]);
    close(out[1]);
    input_ = in[1];
    output_ = out[0];
  }
  ~PacedServer() {
    end_input();
    close(output_);
    kill(process_, SIGKILL);
    waitpid(process_, nullptr, 0);
  }
  PacedServer(const PacedServer&) = delete;
  PacedServer& operator=(const PacedServer&) = delete;

  // Waits until a line with `part` has come, and returns it; "" where none comes.
  std::string line_with(const std::string& part) {
    std::string line;
    pollfd ready{output_, POLLIN, 0};
    char byte = 0;
    while (poll(&ready, 1, int(1000 * kPatience.count())) == 1 && read(output_, &byte, 1) == 1) {
      if (byte != '\n') {
        line += byte;
      } else if (line.find(part) != line.npos) {
        return line;
      } else {
        line.clear();
      }
    }
    return "";
  }
  int wait_for_port() {
    const std::string line = line_with("OpenAI API at");
    const std::string before = "127.0.0.1:";
    return line.empty() ? 0 : std::stoi(line.substr(line.find(before) + before.size()));
  }
  void say(const std::string& line) {
    const std::string text = line + "\n";
    EXPECT_EQ(write(input_, text.data(), text.size()), ssize_t(text.size()));
  }
  void end_input() {
    if (input_ >= 0) close(input_);
    input_ = -1;
  }
  void end() { kill(process_, SIGTERM); }
  int exit_code() {
    int status = 0;
    waitpid(process_, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }

 private:
  pid_t process_ = -1;
  int input_ = -1, output_ = -1;
};

int metric_of(int port, const std::string& name) {
  const std::string text = fetch(port, "/metrics").body;
  const size_t at = text.find("\n" + name + "{");
  return at == text.npos ? -1 : std::stoi(text.substr(text.find("} ", at) + 2));
}

TEST(StepPaceOption, HoldsTheServersStepsAndLetsThemGo) {
  PacedServer server("stdin");
  const int port = server.wait_for_port();
  ASSERT_NE(port, 0);
  server.say("hold");
  ASSERT_EQ(server.line_with("pace:"), "pace: hold");
  Answer answer;
  std::thread client([&] {
    answer = post(port, "/v1/completions",
                  R"({"prompt": "Once upon", "max_tokens": 6, "ignore_eos": true})");
  });
  server.say("step 2");
  EXPECT_EQ(server.line_with("pace:"), "pace: step 2");
  const auto generated = [&] { return metric_of(port, "vllm:generation_tokens_total"); };
  EXPECT_TRUE(wait_until("two tokens", [&] { return generated() == 2; }));
  server.say("5ms");
  EXPECT_EQ(server.line_with("pace:"), "pace: 5ms");
  EXPECT_EQ(generated(), 2);  // a duration does not end the hold
  server.say("hodl");
  EXPECT_NE(server.line_with("ridge:").find("hodl"), std::string::npos);
  server.say("step -1");
  EXPECT_NE(server.line_with("ridge:").find("step -1"), std::string::npos);
  EXPECT_EQ(generated(), 2);
  server.say("go");
  EXPECT_EQ(server.line_with("pace:"), "pace: go");
  client.join();
  EXPECT_EQ(answer.status, 200) << answer.body;
  EXPECT_EQ(answer.json()["usage"]["completion_tokens"], 6);
  // The end of the input lets go what is held.
  server.say("hold");
  EXPECT_EQ(server.line_with("pace:"), "pace: hold");
  std::thread held([&] {
    answer = post(port, "/v1/completions",
                  R"({"prompt": "Once upon", "max_tokens": 6, "ignore_eos": true})");
  });
  EXPECT_TRUE(wait_until("the request waits",
                         [&] { return metric_of(port, "vllm:num_requests_waiting") == 1; }));
  server.end_input();
  held.join();
  EXPECT_EQ(answer.status, 200) << answer.body;
}

// A step that never ends does not keep the server from ending.
TEST(StepPaceOption, AServerThatHangsEndsAfterItsDrain) {
  PacedServer server("stdin", "1");
  const int port = server.wait_for_port();
  ASSERT_NE(port, 0);
  server.say("hold");
  ASSERT_EQ(server.line_with("pace:"), "pace: hold");
  Connection client(port);
  client.send(request_text("/v1/completions", R"({"prompt": "Once upon", "stream": true})"));
  EXPECT_NE(client.receive_until("\r\n\r\n"), "");
  server.end();
  EXPECT_TRUE(client.is_closed_by_peer());
  EXPECT_EQ(server.exit_code(), 0);
}

TEST(StepPaceOption, TakesADuration) {
  PacedServer server("2ms");
  const int port = server.wait_for_port();
  ASSERT_NE(port, 0);
  const auto began = std::chrono::steady_clock::now();
  EXPECT_EQ(post(port, "/v1/completions",
                 R"({"prompt": "Once upon", "max_tokens": 10, "ignore_eos": true})")
                .status,
            200);
  EXPECT_GE(std::chrono::steady_clock::now() - began, std::chrono::milliseconds(20));
}

TEST(StepPaceOption, RefusesWhatIsNoPace) {
  PacedServer server("slow");
  EXPECT_NE(server.line_with("ridge:").find("--step-pace"), std::string::npos);
  EXPECT_EQ(server.exit_code(), 2);
}

TEST(StepPaceOption, IsShownToNoUser) {
  for (const char* command : {"serve --help", "manual", "completion bash"}) {
    FILE* pipe = popen((std::string(RIDGE_BINARY) + " " + command).c_str(), "r");
    ASSERT_NE(pipe, nullptr);
    std::string text;
    char buffer[4096];
    for (size_t n; (n = fread(buffer, 1, sizeof buffer, pipe)) > 0;) text.append(buffer, n);
    EXPECT_EQ(pclose(pipe), 0) << command;
    std::erase(text, '\\');  // roff's, before each dash
    EXPECT_NE(text.find("--max-waiting"), std::string::npos) << command;
    EXPECT_EQ(text.find("step-pace"), std::string::npos) << command;
  }
}

}  // namespace
}  // namespace ridge
