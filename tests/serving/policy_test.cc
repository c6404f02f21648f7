#include "serving/policy.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace ridge {
namespace {

using Reservation = ServingPolicy::Reservation;

TEST(Policy, FollowsTheEnginesDefaults) {
  EXPECT_EQ(policy_of("vllm", 24e9).max_tokens, 2048);
  EXPECT_EQ(policy_of("vllm", 24e9).max_sequences, 256);
  EXPECT_EQ(policy_of("vllm", 80e9).max_tokens, 8192);
  EXPECT_EQ(policy_of("vllm", 80e9).max_sequences, 1024);
  EXPECT_EQ(policy_of("vllm", 192e9).max_tokens, 16384);
  EXPECT_EQ(policy_of("vllm").reservation, Reservation::kPrompt);
  EXPECT_FALSE(policy_of("sglang").mixed);
  EXPECT_EQ(policy_of("sglang").reservation, Reservation::kEstimate);
  EXPECT_FALSE(policy_of("trtllm").chunked);
  EXPECT_EQ(policy_of("trtllm").reservation, Reservation::kOutput);
  EXPECT_EQ(policy_of("trtllm").page_tokens, 32);
  EXPECT_TRUE(policy_of("ridge").awaits_prefix);
  EXPECT_EQ(policy_of("typical").max_tokens, policy_of("vllm").max_tokens);
}

TEST(Policy, TakesTheEnginesOptionNames) {
  ServingPolicy policy = policy_of("vllm");
  apply_settings(policy, "");
  apply_settings(policy, "max_num_seqs=64,max_num_batched_tokens=512,kv_blocks=1000,block_size=32");
  EXPECT_EQ(policy.max_sequences, 64);
  EXPECT_EQ(policy.max_tokens, 512);
  EXPECT_EQ(policy.pages, 1000);
  EXPECT_EQ(policy.page_tokens, 32);
  EXPECT_TRUE(policy.prefix_cache);
  apply_settings(policy, "prefix_cache=off,scheduler_recv_interval=10,batch_wait_timeout_iters=20");
  EXPECT_FALSE(policy.prefix_cache);
  EXPECT_EQ(policy.poll, 10);
  EXPECT_EQ(policy.wait, 20);
  apply_settings(policy = policy_of("vllm"), "max_num_batched_tokens=512");
  EXPECT_EQ(policy.max_sequences, 512);  // of 1024 by default
}

std::string fault_of(const char* settings) {
  ServingPolicy policy = policy_of("vllm");
  try {
    apply_settings(policy, settings);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(Policy, RefusesSettingsThatItDoesNotKnow) {
  EXPECT_TRUE(
      fault_of("max_num_seq=64")
          .starts_with("--set max_num_seq: no such setting (did you mean max_num_seqs?); there are "
                       "max_num_batched_tokens, "));
  EXPECT_EQ(fault_of("max_num_seqs"), "--set max_num_seqs: NAME=VALUE is missing");
  for (const char* value : {"", "0", "-3", "1.5", "64k", "99999999999"}) {
    EXPECT_EQ(fault_of((std::string("max_num_seqs=") + value).c_str()),
              std::string("--set max_num_seqs=") + value + ": a whole number from 1 to 1073741824");
  }
  EXPECT_EQ(fault_of("prefix_cache=maybe"), "--set prefix_cache=maybe: on or off");
  EXPECT_EQ(fault_of("max_num_batched_tokens=100,max_num_seqs=128"),
            "--set: a step of 100 tokens does not hold a token of each of 128 sequences; set a "
            "smaller max_num_seqs or a larger max_num_batched_tokens");
}

}  // namespace
}  // namespace ridge
