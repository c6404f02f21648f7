// `ridge plan` as people and scripts use it.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "base/json.h"

namespace ridge {
namespace {

namespace fs = std::filesystem;

class PlanCommand : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "ridge-plan-XXXXXX").string();
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    folder_ = name;
  }
  void TearDown() override { fs::remove_all(folder_); }

  // Standard output; `code` gets the exit code, `error_` standard error.
  std::string run(const std::string& arguments, int& code) {
    const std::string errors = (folder_ / "stderr").string();
    const std::string command =
        fmt::format("{} plan {} 2>{} </dev/null", RIDGE_BINARY, arguments, errors);
    FILE* pipe = popen(command.c_str(), "r");
    std::string out;
    char buffer[4096];
    for (size_t n; (n = fread(buffer, 1, sizeof buffer, pipe)) > 0;) out.append(buffer, n);
    const int status = pclose(pipe);
    code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    error_ = text_of(errors);
    return out;
  }
  Json json(const std::string& arguments) {
    int code = -1;
    const std::string out = run(arguments + " --json", code);
    EXPECT_EQ(code, 0) << arguments << ": " << error_;
    Json value = Json::parse(out, nullptr, false);
    EXPECT_FALSE(value.is_discarded()) << out;
    return value;
  }
  std::string refused(const std::string& arguments) {
    int code = -1;
    EXPECT_EQ(run(arguments, code), "") << arguments;
    EXPECT_EQ(code, 2) << arguments;
    EXPECT_EQ(std::count(error_.begin(), error_.end(), '\n'), 1) << error_;
    return error_;
  }
  std::string write(const std::string& name, const std::string& text) const {
    std::ofstream(folder_ / name) << text;
    return (folder_ / name).string();
  }
  static std::string text_of(const std::string& path) {
    std::ifstream file(path);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  std::string path(const char* name) const { return (folder_ / name).string(); }

  // Requests that are not in order of arrival.
  std::string workload() const {
    std::string text;
    for (int i = 0; i < 60; ++i) {
      text += fmt::format("{{\"arrival_ms\": {}, \"prompt_tokens\": {}, \"output_tokens\": {}}}\n",
                          (i * 37 % 60) * 50, 100 + 13 * i, 1 + i % 40);
    }
    return write("w.jsonl", text);
  }

  fs::path folder_;
  std::string error_;
};

TEST_F(PlanCommand, ReplaysEachRequestInTheOrderOfTheFile) {
  const std::string out = path("out.csv");
  const std::string arguments = fmt::format(
      "--simulate {} -m llama-3-8b -M h100-sxm --stack vllm --tp 1 --requests {}", workload(), out);
  const Json summary = json(arguments);
  EXPECT_EQ(summary.at("requests"), 60);
  EXPECT_EQ(summary.at("refused"), 0);
  EXPECT_EQ(summary.at("plan").at("tp"), 1);
  for (const char* key : {"ttft_s", "itl_s", "e2e_s"}) {
    EXPECT_GT(summary.at(key).at("mean").get<double>(), 0) << key;
    EXPECT_LE(summary.at(key).at("p50"), summary.at(key).at("p99")) << key;
  }
  const std::string text = text_of(out);
  std::istringstream lines(text);
  std::string line;
  std::getline(lines, line);
  EXPECT_EQ(line,
            "request,arrival_s,scheduled_s,first_token_s,finish_s,prompt_tokens,output_tokens,"
            "cached_tokens,preemptions,replica");
  double ttft = 0;
  for (int i = 0; i < 60; ++i) {
    ASSERT_TRUE(std::getline(lines, line));
    int request = 0, prompt = 0, output = 0;
    double arrival = 0, scheduled = 0, first = 0, finish = 0;
    ASSERT_EQ(std::sscanf(line.c_str(), "%d,%lf,%lf,%lf,%lf,%d,%d", &request, &arrival, &scheduled,
                          &first, &finish, &prompt, &output),
              7);
    EXPECT_EQ(request, i);
    EXPECT_NEAR(arrival, (i * 37 % 60) * 0.05, 1e-9);
    EXPECT_EQ(prompt, 100 + 13 * i);
    EXPECT_EQ(output, 1 + i % 40);
    EXPECT_LE(arrival, scheduled);
    EXPECT_LT(scheduled, first);
    EXPECT_LE(first, finish);
    ttft += (first - arrival) / 60;
  }
  EXPECT_FALSE(std::getline(lines, line));
  EXPECT_NEAR(ttft, summary.at("ttft_s").at("mean").get<double>(), 1e-5);
  json(arguments);
  EXPECT_EQ(text, text_of(out)) << "not deterministic";
}

TEST_F(PlanCommand, SettingsAndReplicasCount) {
  const std::string base = fmt::format("--simulate {} -m llama-3-8b --stack vllm ", workload());
  const Json one = json(base + "-M h100-sxm --set max_num_seqs=1,kv_blocks=500");
  EXPECT_EQ(one.at("policy").at("max_num_seqs"), 1);
  EXPECT_EQ(one.at("policy").at("kv_blocks"), 500);
  EXPECT_LE(one.at("mean_running").get<double>(), 1.0001);
  const Json many = json(base + "-M 8xh100-sxm --tp 1 --dp 8");
  EXPECT_LT(many.at("ttft_s").at("mean"), one.at("ttft_s").at("mean"));
  // A cache of ten pages refuses what is longer.
  EXPECT_GT(json(base + "-M h100-sxm --set kv_blocks=10").at("refused").get<int>(), 30);
}

TEST_F(PlanCommand, FindsTheCheapestThatMeetsTheTargets) {
  const std::string base =
      "-m llama-3-8b --stack vllm --rate 20 --prompt 500 --output 100 --count 2000 --ttft 1s "
      "--itl 40ms -M h100-sxm=2,h200=3,k80=0.1 ";
  const Json plan = json(base);
  const Json& candidates = plan.at("candidates");
  ASSERT_EQ(candidates.size(), 3u);
  const Json& best = candidates.front();
  EXPECT_EQ(best.at("meets"), true);
  EXPECT_EQ(best.at("machine"), "h100-sxm");
  EXPECT_EQ(best.at("dollars_per_hour"), 2.0 * best.at("machines").get<int>());
  EXPECT_LE(best.at("ttft_s").get<double>(), 1);
  EXPECT_LE(best.at("itl_s").get<double>(), 0.04);
  EXPECT_EQ(candidates.back().at("machine"), "k80");
  EXPECT_EQ(candidates.back().at("meets"), false);
  EXPECT_NE(candidates.back().at("reason"), "");
  EXPECT_GE(plan.at("best").at("breaks").at("factor").get<double>(), 1.2);
  EXPECT_NE(plan.at("best").at("launch").get<std::string>().find(
                "vllm serve meta-llama/Meta-Llama-3-8B-Instruct "),
            std::string::npos);
  EXPECT_EQ(plan, json(base)) << "not deterministic";
  // More traffic costs more.
  const Json more = json(base + "--growth 20");
  EXPECT_GT(more.at("candidates").front().at("dollars_per_hour"), best.at("dollars_per_hour"));
}

TEST_F(PlanCommand, ShowsMachinesOverTime) {
  std::string text = "TIMESTAMP,ContextTokens,GeneratedTokens\n";
  for (int i = 0; i < 3000; ++i) {
    // The second ten minutes bring nine times the requests; the growth makes them 150 seconds.
    const double t = i < 300 ? 2. * i : 600 + (i - 300) * 600. / 2700;
    text += fmt::format("2023-11-16 18:{:02}:{:02},2000,100\n", int(t) / 60, int(t) % 60);
  }
  const Json plan =
      json(fmt::format("-m llama-3-8b --stack vllm -M h100-sxm=2 --trace {} --ttft 1s "
                       "--itl 40ms --interval 75s --start-up 75s --growth 4",
                       write("azure.csv", text)));
  const Json& curve = plan.at("best").at("capacity");
  ASSERT_EQ(curve.size(), 4u);
  EXPECT_LT(curve[0].at("needed"), curve[3].at("needed"));
  EXPECT_EQ(curve[1].at("up"), curve[2].at("needed"));
}

TEST_F(PlanCommand, ClosedLoopCountsRequestsWhereAllAreSentAtOnce) {
  const Json plan = json(
      "-m llama-3-8b --stack vllm -M h100-sxm --clients 200 --count 100 --prompt 500 --output 50 "
      "--ttft 100s");
  const Json& candidate = plan.at("candidates").front();
  EXPECT_EQ(candidate.at("meets"), true);
  EXPECT_GT(candidate.at("ttft_s").get<double>(), 0);
}

TEST_F(PlanCommand, ReplicaFitsItsMachine) {
  const Json plan = json("-m llama-3-8b -M h100-sxm --tp 8 --rate 1 --count 100 --ttft 1s");
  EXPECT_TRUE(plan.at("best").is_null());
  EXPECT_NE(plan.at("candidates").front().at("reason").get<std::string>().find("devices"),
            std::string::npos);
}

TEST_F(PlanCommand, BadInputIsOneLine) {
  const std::string w = workload();
  EXPECT_NE(refused("-m llama-3-8b --rate 1").find("needs a target"), std::string::npos);
  EXPECT_NE(refused("-m llama-3-8b --ttft 1s -M h100-sxm").find("needs traffic"),
            std::string::npos);
  EXPECT_NE(refused("--simulate " + w + " --set max_num_seqz=3").find("max_num_seqs"),
            std::string::npos);
  EXPECT_NE(refused("--simulate " + write("bad.jsonl", "{\"prompt\": 1}\n")).find("bad.jsonl:1:"),
            std::string::npos);
  refused("--simulate /nowhere");
  refused("--simulate " + w + " -m llama-3-70b -M h100-sxm --tp 1");  // does not fit
  refused("--simulate " + w + " -M h100-sxm,h200");
  refused("--simulate " + w + " --routing random");
  refused("--simulate " + w + " --requests /nowhere/out.csv");
  refused("--ttft -1s --rate 1 -M h100-sxm");
  EXPECT_NE(refused("--ttft 500 --rate 1 -M h100-sxm").find("unit"), std::string::npos);
  refused("--ttft 1s --rate 1 -M 8xh100-sxm --tp 1 --dp 2");
  refused("--ttft 1s --rate 1 --count 500 -M h100-sxm --interval 1us");
  refused("--ttft 1s --rate 1 -M h100-sxm=x");
  refused("--ttft 1s --rate 1 -M h100-sxmm");
  refused("--ttft 1s --rate 1 --prompt 0 -M h100-sxm");
}

}  // namespace
}  // namespace ridge
