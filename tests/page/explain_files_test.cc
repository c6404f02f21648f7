// Files that a page sends: the answer is that of `ridge explain FILE... --json`, and nothing stays.
#include "page/explain_files.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "diagnose/explain_options.h"
#include "diagnose/json.h"
#include "support.h"

namespace ridge {
namespace {

namespace fs = std::filesystem;

// Temporary files of this test go here, so that what is left can be counted.
class ExplainFiles : public testing::Test {
 protected:
  void SetUp() override {
    if (const char* old = std::getenv("TMPDIR")) before_ = old;
    folder_ = fs::path(testing::TempDir()) / fmt::format("explain-files-{}", getpid());
    fs::create_directories(folder_ / "tmp");
    setenv("TMPDIR", (folder_ / "tmp").c_str(), 1);
  }
  void TearDown() override {
    EXPECT_TRUE(fs::is_empty(folder_ / "tmp")) << "temporary files were left";
    before_.empty() ? unsetenv("TMPDIR") : setenv("TMPDIR", before_.c_str(), 1);
    fs::remove_all(folder_);
  }

  fs::path folder_;
  std::string before_;
};

struct File {
  std::string name, text;
  double modified_s = 0;
};

std::string body_of(const std::vector<File>& files,
                    nlohmann::json options = nlohmann::json::object()) {
  nlohmann::json head{{"options", std::move(options)}, {"files", nlohmann::json::array()}};
  std::string bytes;
  for (const File& file : files) {
    head["files"].push_back(
        {{"name", file.name}, {"bytes", file.text.size()}, {"modified_s", file.modified_s}});
    bytes += file.text;
  }
  return head.dump() + "\n" + bytes;
}

Answer send(int port, const std::string& body,
            const std::string& type = "application/x-ridge-files") {
  return fetch(port, "/api/explain/files", "Content-Type: " + type + "\r\n", "POST", body);
}

const std::string kMetrics =
    "vllm:num_requests_running 32\nvllm:num_requests_waiting 40\nvllm:kv_cache_usage_perc 0.99\n";
const std::string kSmi =
    "timestamp, name, utilization.gpu [%], memory.used [MiB], memory.total [MiB]\n"
    "2026/11/16 12:00:00.000, NVIDIA H200, 97 %, 130000 MiB, 143771 MiB\n";

// What the command line would print for the same files, in a folder where they have these names.
nlohmann::json expected_of(const fs::path& folder, const std::vector<File>& files,
                           const RequestOptions& request) {
  ExplainOptions options;
  options.request = request;
  for (const File& file : files) {
    std::ofstream(folder / file.name, std::ios::binary) << file.text;
    options.files.push_back((folder / file.name).string());
  }
  std::string text = to_json(explain(options)).dump();
  const std::string prefix = folder.string() + "/";
  for (size_t at = 0; (at = text.find(prefix, at)) != text.npos;) text.erase(at, prefix.size());
  return nlohmann::json::parse(text);
}

TEST_F(ExplainFiles, AnswersAsTheCommandLineDoes) {
  TestServer server;
  const std::vector<File> files = {{"metrics.prom", kMetrics}, {"smi.csv", kSmi}};
  const Answer answer = send(server.port(), body_of(files, {{"model", "llama-3-8b"}}));
  ASSERT_EQ(answer.status, 200) << answer.body;
  RequestOptions request = ExplainOptions().request;
  request.model = "llama-3-8b";
  nlohmann::json expected = expected_of(folder_, files, request);
  nlohmann::json got = answer.json();
  EXPECT_EQ(got["expected"]["machine"], "h200");  // from nvidia-smi
  EXPECT_EQ(got["files"][0]["path"].get<std::string>().find('/'), std::string::npos);
  // A page's time is its file's, so ages in words may differ by the second between.
  for (nlohmann::json* json : {&got, &expected}) (*json)["files"] = nullptr;
  EXPECT_EQ(got, expected);
}

TEST_F(ExplainFiles, TwoSnapshotsAreAWindowByTheirTimes) {
  TestServer server;
  const std::string page = "vllm:num_requests_running 8\nvllm:generation_tokens_total {}\n";
  const auto at = [&](const char* tokens) { return fmt::format(fmt::runtime(page), tokens); };
  const std::vector<File> files = {{"m.prom", at("1000"), 1.7e9},
                                   {"m.prom", at("7000"), 1.7e9 + 30}};
  const Answer answer =
      send(server.port(), body_of(files, {{"model", "llama-3-8b"}, {"machine", "h200"}}));
  ASSERT_EQ(answer.status, 200) << answer.body;
  double rate = 0;
  const nlohmann::json got = answer.json();
  for (const auto& q : got["observed"]["quantities"]) {
    if (q["name"] == "tokens_per_s") rate = q["value"];
  }
  EXPECT_NEAR(rate, 200, 1e-6);
}

TEST_F(ExplainFiles, TypedNumbersCountToo) {
  TestServer server;
  const auto answer =
      send(server.port(),
           body_of({{"m.prom", kMetrics}},
                   {{"gpu-util", "0.97"}, {"model", "llama-3-8b"}, {"machine", "h200"}}))
          .json();
  bool typed = false;
  for (const auto& q : answer["observed"]["quantities"])
    typed |= q["name"] == "gpu_util" && q["trust"] == "stated";
  EXPECT_TRUE(typed) << answer.dump();
}

TEST_F(ExplainFiles, RefusesInOneLine) {
  TestServer server;
  const int port = server.port();
  const auto refused = [&](const Answer& a, int status, std::string_view part) {
    EXPECT_EQ(a.status, status) << a.body;
    const std::string message = a.json()["error"]["message"];
    EXPECT_NE(message.find(part), std::string::npos) << message;
    EXPECT_EQ(message.find("/tmp"), std::string::npos) << message;
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
  };
  refused(send(port, body_of({{"notes.txt", "buy milk\n"}})), 400, "notes.txt: not recognised");
  refused(send(port, body_of({{"empty.prom", ""}})), 400, "empty.prom: is empty");
  refused(send(port, body_of({})), 400, "no file");
  refused(send(port, body_of({{"..", "x"}})), 400, "name");
  refused(send(port, body_of({{"m.prom", kMetrics}}, {{"modell", "x"}})), 400,
          "did you mean model");
  refused(send(port, body_of({{"m.prom", kMetrics}}, {{"machine", "h1000"}})), 400, "h100");
  refused(send(port, body_of({{"m.prom", kMetrics}}, {{"model", 7}})), 400, "text");
  refused(send(port, body_of({{"m.prom", kMetrics}}) + "more"), 400, "4 bytes follow");
  refused(send(port, "no line"), 400, "one line of JSON");
  refused(send(port, "[]\n"), 400, "object");
  refused(send(port, R"({"files":[{"name":"a","bytes":-1}]})"
                     "\n"),
          400, "number of bytes");
  refused(send(port, R"({"files":[{"name":"a","bytes":99}]})"
                     "\nshort"),
          400, "ends before");
  refused(send(port, "{}", "application/json"), 415, "x-ridge-files");
  refused(fetch(port, "/api/explain/files"), 405, "POST");
}

TEST_F(ExplainFiles, NamesAreNoPaths) {
  TestServer server;
  const Answer answer = send(
      server.port(), body_of({{"../../" + folder_.filename().string() + "/evil.prom", kMetrics}}));
  EXPECT_EQ(answer.status, 200) << answer.body;
  EXPECT_EQ(answer.json()["files"][0]["path"], "evil.prom");
  EXPECT_FALSE(fs::exists(folder_ / "evil.prom"));
}

// Files are read from the body: where nothing can be written, they are explained all the same.
TEST_F(ExplainFiles, NothingIsWritten) {
  setenv("TMPDIR", (folder_ / "none").c_str(), 1);
  TestServer server;
  EXPECT_EQ(send(server.port(), body_of({{"m.prom", kMetrics}})).status, 200);
  // SQLite would open a path.
  const std::string page(4096, '\0');
  const Answer sqlite = send(server.port(), body_of({{"a.sqlite", "SQLite format 3" + page}}));
  EXPECT_EQ(sqlite.status, 400);
  EXPECT_TRUE(sqlite.json()["error"]["message"].get<std::string>().starts_with("a.sqlite: "))
      << sqlite.body;
}

TEST_F(ExplainFiles, AreTakenFromOthersWithAKeyOnly) {
  HttpRequest request;
  request.method = "POST";
  request.path = kExplainFilesPath;
  request.content_type = kExplainFilesType;
  const auto status = [&](const AccessRules& rules) {
    const auto refusal = refuse_head(request, rules);
    return refusal ? refusal->status : 200;
  };
  EXPECT_EQ(status({}), 200);
  EXPECT_EQ(status({.keys = {"k"}}), 200);  // users of this machine need none
  EXPECT_EQ(status({.bound_host = "0.0.0.0"}), 403);
  EXPECT_EQ(status({.bound_host = "0.0.0.0", .keys = {"k"}}), 401);
  EXPECT_EQ(status({.allowed_hosts = {"a.example"}, .keys = {"k"}}), 401);
  request.api_key = "k";
  EXPECT_EQ(status({.bound_host = "0.0.0.0", .keys = {"k"}}), 200);
}

// One body is received and explained at a time, so that they take 256 MiB together and not each.
TEST_F(ExplainFiles, OneAtATime) {
  TestServer server;
  const std::string body = body_of({{"m.prom", kMetrics}});
  const std::string head = fmt::format(
      "POST {} HTTP/1.1\r\nHost: localhost\r\nContent-Type: {}\r\nContent-Length: {}\r\n\r\n",
      kExplainFilesPath, kExplainFilesType, body.size());
  Connection first(server.port());
  first.send_at_once();
  first.send(head + body.substr(0, 1));
  // The server reads its sockets one after the other, so a later answer means that it has begun.
  EXPECT_EQ(fetch(server.port(), "/healthz").status, 200);
  const auto second_status = [&] { return send(server.port(), body).status; };
  EXPECT_TRUE(wait_until("the first has its place", [&] { return second_status() == 503; }));
  const Answer refused = send(server.port(), body);
  EXPECT_NE(refused.head.find("Retry-After: "), std::string::npos);
  first.send(body.substr(1));
  EXPECT_EQ(parse_answer(first.receive()).status, 200);
  EXPECT_TRUE(wait_until("the place is free", [&] { return second_status() == 200; }));
}

// Whatever the bytes, an answer comes and nothing stays: every prefix and some flips of a sound
// body.
TEST_F(ExplainFiles, DamagedBodiesAreAnswered) {
  const std::string sound = body_of({{"metrics.prom", kMetrics}, {"smi.csv", kSmi}});
  HttpRequest request;
  request.method = "POST";
  request.path = kExplainFilesPath;
  request.content_type = kExplainFilesType;
  unsigned state = 1;
  for (int i = 0; i < 300; ++i) {
    request.body = sound.substr(0, i % 2 ? sound.size() : sound.size() * size_t(i) / 300);
    for (int flips = 0; flips < 3 && i % 2 && !request.body.empty(); ++flips) {
      state = state * 1664525u + 1013904223u;
      request.body[state % request.body.size()] = char(state >> 24);
    }
    const int status = reply_to(request, {}).status;
    EXPECT_TRUE(status == 200 || status == 400) << status;
  }
}

}  // namespace
}  // namespace ridge
