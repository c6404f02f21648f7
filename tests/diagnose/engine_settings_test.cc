#include "diagnose/engine_settings.h"

#include <gtest/gtest.h>

namespace ridge {
namespace {

constexpr const char* kEngines[] = {"vllm",      "sglang", "trtllm", "tgi",
                                    "llama.cpp", "ollama", "nim",    "ridge"};

TEST(EngineSettings, EveryEngineCanRunMoreSequences) {
  for (const char* engine : kEngines) {
    EXPECT_FALSE(engine_setting(engine, Change::more_sequences).empty()) << engine;
    EXPECT_FALSE(engine_setting(engine, Change::kv_room).empty()) << engine;
    EXPECT_FALSE(engine_setting(engine, Change::quantized_weights).empty()) << engine;
  }
  EXPECT_EQ(engine_setting("vllm", Change::more_sequences), "--max-num-seqs");
  EXPECT_EQ(engine_setting("sglang", Change::less_reservation), "--schedule-conservativeness 0.3");
}

TEST(EngineSettings, NoSettingIsEmpty) {
  EXPECT_TRUE(engine_setting("", Change::more_sequences).empty());
  EXPECT_TRUE(engine_setting("unheard-of", Change::kv_fp8).empty());
  EXPECT_TRUE(engine_setting("llama.cpp", Change::disaggregation).empty());
  EXPECT_TRUE(engine_setting("ridge", Change::tensor_parallel).empty());
}

}  // namespace
}  // namespace ridge
