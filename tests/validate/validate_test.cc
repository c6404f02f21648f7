// Reading and scoring folders of measured tables, with small ones made here.
#include <gtest/gtest.h>
#include <zlib.h>

#include <filesystem>
#include <fstream>

#include "base/error.h"
#include "machine/atlas.h"
#include "validate/csv.h"
#include "validate/endpoints.h"
#include "validate/score.h"
#include "validate/silicon.h"

namespace ridge {
namespace {

namespace fs = std::filesystem;

class Folder : public testing::Test {
 protected:
  void SetUp() override {
    root_ = fs::temp_directory_path() /
            ("ridge_validate_" +
             std::string(testing::UnitTest::GetInstance()->current_test_info()->name()) +
             std::to_string(::getpid()));
    fs::create_directories(root_);
  }
  void TearDown() override { fs::remove_all(root_); }

  std::string write(const std::string& path, const std::string& text) {
    const fs::path full = root_ / path;
    fs::create_directories(full.parent_path());
    std::ofstream(full) << text;
    return full.string();
  }
  std::string write_gz(const std::string& path, const std::string& text) {
    const fs::path full = root_ / path;
    fs::create_directories(full.parent_path());
    gzFile file = gzopen(full.c_str(), "wb");
    gzwrite(file, text.data(), static_cast<unsigned>(text.size()));
    gzclose(file);
    return full.string();
  }
  Scoreboard score() {
    lines_.clear();
    return score_silicon(root_.string(), builtin_fits(), 2,
                         [this](const std::string& line) { lines_.push_back(line); });
  }

  fs::path root_;
  std::vector<std::string> lines_;
};

constexpr const char* kGemm = "gemm_dtype,kernel_source,m,n,k,us\n";

// What the predictor itself says, so that the error is known.
std::string predicted_us(double m, double n, double k, double factor) {
  const GpuTraits gpu = gpu_traits(find_machine("h100-sxm"));
  GemmCall call;
  call.m = m;
  call.n = n;
  call.k = k;
  call.reuse_bytes = 6 * n * k * 2;
  const KernelMatch match = find_fit(builtin_fits(), {KernelKind::gemm, "vllm", "bfloat16",
                                                      "torch.nn.functional.linear", gpu.arch, 0});
  return fmt::format("bfloat16,torch.nn.functional.linear,{},{},{},{}\n", m, n, k,
                     kernel_seconds(*match.fit, call, gpu) * 1e6 * factor);
}

TEST_F(Folder, CsvReadsPlainAndGzipAlike) {
  const std::string text = "a,b\r\n1,2\n\n3,\n";
  for (const std::string& path : {write("x.csv", text), write_gz("x.csv.gz", text)}) {
    CsvReader csv(path);
    EXPECT_EQ(csv.header(), (std::vector<std::string>{"a", "b"}));
    EXPECT_EQ(csv.column("b"), 1);
    EXPECT_EQ(csv.column("c"), -1);
    ASSERT_TRUE(csv.next());
    EXPECT_EQ(csv.field(1), "2");
    ASSERT_TRUE(csv.next());
    EXPECT_EQ(csv.line(), 4u);
    EXPECT_EQ(csv.fields(), 2u);
    EXPECT_EQ(csv.field(1), "");
    EXPECT_FALSE(csv.next());
  }
  EXPECT_THROW(CsvReader("/nonexistent/x.csv"), Error);
  EXPECT_THROW(CsvReader(write("empty.csv", "")), Error);
}

TEST_F(Folder, ScoresWhatThePredictorSays) {
  std::string table = kGemm;
  for (double m : {1.0, 128.0, 4096.0}) {
    table += predicted_us(m, 4096, 4096, 1.25);
    table += predicted_us(m, 8192, 1024, 1.25);
  }
  write("h100_sxm/gemm.vllm.csv", table);
  const Scoreboard board = score();
  ASSERT_EQ(board.groups.size(), 1u);
  const ScoreGroup& group = board.groups[0];
  EXPECT_EQ(group.op, "gemm");
  EXPECT_EQ(group.gpu, "h100_sxm");
  EXPECT_EQ(group.stats.rows, 6u);
  // predicted / measured - 1 = 1 / 1.25 - 1 = -20 %; the table keeps six digits.
  EXPECT_NEAR(group.stats.mape, 20, 1e-3);
  EXPECT_NEAR(group.stats.median, 20, 1e-3);
  EXPECT_NEAR(group.stats.bias, 1.25, 1e-4);
  EXPECT_EQ(group.strata.size(), 3u);
  EXPECT_EQ(board.totals.at("gemm").rows, 6u);
  EXPECT_TRUE(lines_.empty());
}

TEST_F(Folder, BadRowsAreNamedAndTheRestScored) {
  write_gz("h100_sxm/gemm.vllm.csv.gz",
           kGemm + predicted_us(1, 4096, 4096, 1) + "bfloat16,k,1,4096,oops,3\n" +
               "bfloat16,k,1,4096,4096\n" + "fp3,k,1,4096,4096,3\n" + "bfloat16,k,1,0,4096,3\n" +
               "bfloat16,k,1,4096,4096,-3\n" + predicted_us(64, 4096, 4096, 1));
  const Scoreboard board = score();
  EXPECT_EQ(board.totals.at("gemm").rows, 2u);
  ASSERT_EQ(lines_.size(), 5u);
  EXPECT_NE(lines_[0].find("gemm.vllm.csv.gz: row 3: k is 'oops'"), std::string::npos) << lines_[0];
  EXPECT_NE(lines_[1].find("row 4: 5 fields"), std::string::npos) << lines_[1];
  EXPECT_NE(lines_[2].find("row 5: unknown dtype 'fp3'"), std::string::npos) << lines_[2];
}

TEST_F(Folder, UnknownGpusColumnsAndTablesDoNotStopTheRest) {
  write("h100_sxm/gemm.vllm.csv", kGemm + predicted_us(1, 4096, 4096, 1));
  write("riva_128/gemm.vllm.csv", kGemm + predicted_us(1, 4096, 4096, 1));
  write("h200_sxm/gemm.vllm.csv", "gemm_dtype,m,n,us\nbfloat16,1,2,3\n");
  write("h200_sxm/weather.vllm.csv", "a\n1\n");
  const Scoreboard board = score();
  EXPECT_EQ(board.groups.size(), 1u);
  EXPECT_EQ(board.ignored.size(), 1u);
  ASSERT_EQ(lines_.size(), 2u);
  std::string all = lines_[0] + lines_[1];
  EXPECT_NE(all.find("no column 'k'"), std::string::npos) << all;
  EXPECT_NE(all.find("riva"), std::string::npos) << all;
}

TEST_F(Folder, AnUnknownNameIsSaidOnce) {
  const std::string bad = "fp3,k,1,4096,4096,3\n";
  write("h100_sxm/gemm.vllm.csv", kGemm + bad + bad + bad);
  write("riva_128/gemm.vllm.csv", kGemm + bad);
  write("riva_128/gemm.sglang.csv", kGemm + bad);
  score();
  ASSERT_EQ(lines_.size(), 2u);
  EXPECT_NE((lines_[0] + lines_[1]).find("row 2: unknown dtype 'fp3'"), std::string::npos);
  EXPECT_NE((lines_[0] + lines_[1]).find("riva_128: "), std::string::npos);
}

TEST_F(Folder, AnUnknownModelOfEndpointsIsSaidOnceWithItsRows) {
  const std::string columns =
      "model_path,system,backend,tp_size,concurrency,isl,osl,silicon_ttft_ms,silicon_tpot_ms\n";
  const std::string rest = ",h100_sxm,vllm,1,8,1024,1024,100,10\n";
  const std::string path =
      write("e2e/e2e.csv", columns + "acme/Gizmo-9B" + rest + "acme/Gizmo-9B" + rest +
                               "meta-llama/Meta-Llama-3-8B" + rest + "acme/Gadget-1B" + rest);
  size_t skipped = 0;
  const auto rows =
      read_endpoints(path, skipped, [this](const std::string& line) { lines_.push_back(line); });
  EXPECT_EQ(rows.size(), 1u);
  ASSERT_EQ(lines_.size(), 2u);
  EXPECT_TRUE(lines_[0].starts_with(path + ": 1 row: ")) << lines_[0];
  EXPECT_TRUE(lines_[1].starts_with(path + ": 2 rows: ")) << lines_[1];
  EXPECT_NE(lines_[1].find("Gizmo"), std::string::npos) << lines_[1];
}

TEST_F(Folder, DefectiveTablesStandApart) {
  write("h100_sxm/gemm.vllm.csv",
        kGemm + predicted_us(1, 4096, 4096, 1) + "fp8_block,DeepGemm,1,4096,4096,80\n");
  const Scoreboard board = score();
  EXPECT_EQ(board.groups.size(), 2u);
  EXPECT_EQ(board.totals.at("gemm").rows, 1u);
  EXPECT_EQ(board.apart.at("gemm").rows, 1u);
}

TEST_F(Folder, RowsBelowTheRoofAreCounted) {
  write("h100_sxm/gemm.vllm.csv", std::string(kGemm) + "bfloat16,k,8192,8192,8192,1\n");
  EXPECT_EQ(score().totals.at("gemm").outside_physics, 1u);
}

TEST_F(Folder, EveryTableIsUnderstood) {
  write("h100_sxm/context_attention.vllm.csv",
        "attn_dtype,kv_cache_dtype,kernel_source,batch_size,isl,num_heads,num_key_value_heads,"
        "head_dim,window_size,us\nbfloat16,fp8,fa3,2,1024,32,8,128,0,100\n");
  write("h100_sxm/generation_attention.vllm.csv",
        "attn_dtype,kv_cache_dtype,kernel_source,batch_size,step,num_heads,num_key_value_heads,"
        "head_dim,us\nbfloat16,fp8,fa3,2,1023,32,0,128,20\n");
  write("h100_sxm/context_mla.trtllm.csv",
        "mla_dtype,kv_cache_dtype,kernel_source,num_heads,batch_size,isl,us\n"
        "bfloat16,bfloat16,default,128,1,512,60\n");
  write("h100_sxm/generation_mla.trtllm.csv",
        "mla_dtype,kv_cache_dtype,kernel_source,num_heads,batch_size,step,us\n"
        "bfloat16,bfloat16,default,128,1,512,15\n");
  write("h100_sxm/moe.trtllm.csv",
        "moe_dtype,kernel_source,num_tokens,hidden_size,inter_size,topk,num_experts,moe_tp_size,"
        "moe_ep_size,distribution,us\nfp8,moe,64,4096,2048,8,128,1,2,power_law_1.2,300\n");
  write("h100_sxm/nccl.nccl.csv",
        "op_name,nccl_dtype,num_gpus,message_size,us\nalltoall,half,8,1048576,30\n");
  write("h100_sxm/custom_allreduce.sglang.csv",
        "kernel_source,allreduce_dtype,num_gpus,message_size,us\n"
        "SGLang_CustomAllReduce_graph,bfloat16,8,1024,4\n");
  const Scoreboard board = score();
  EXPECT_EQ(board.groups.size(), 7u);
  for (const std::string& line : lines_) ADD_FAILURE() << line;
  for (const ScoreGroup& group : board.groups) EXPECT_LT(group.stats.mape, 150) << group.op;
}

TEST_F(Folder, MissingFolderIsAnError) {
  EXPECT_THROW(score_silicon((root_ / "nothing").string(), builtin_fits(), 1, [](const auto&) {}),
               Error);
}

// The whole calibration set, where the shared material lies beside the repository.
TEST(Silicon, ScoresTheCalibrationSet) {
  const std::string folder = std::string(RIDGE_SOURCE_DIR) + "/../shared/silicon/calib";
  if (!fs::exists(folder)) GTEST_SKIP() << folder << " is not here; skipping the full score";
  const Scoreboard board = score_silicon(folder, builtin_fits(), 2, [](const auto&) {});
  const std::map<std::string, double> most = {
      {"gemm", 9},  {"context_attention", 14}, {"generation_attention", 14},
      {"moe", 22},  {"context_mla", 14},       {"generation_mla", 15},
      {"nccl", 10}, {"custom_allreduce", 9}};
  for (const auto& [op, mape] : most) {
    ASSERT_TRUE(board.totals.contains(op)) << op;
    EXPECT_LT(board.totals.at(op).mape, mape) << op;
    EXPECT_GT(board.totals.at(op).in_band, 0.75) << op;
  }
}

}  // namespace
}  // namespace ridge
