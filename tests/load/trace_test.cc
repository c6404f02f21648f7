// Trace files of other projects, recognised by their content.
#include "load/trace.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "load/trace_fields.h"

namespace ridge {
namespace {

std::string trace_error(std::string_view text) {
  try {
    parse_trace(text, "t");
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(Trace, ReadsMooncakeWithBlocks) {
  const Trace t = parse_trace(
      R"({"timestamp": 0, "input_length": 1100, "output_length": 5, "hash_ids": [7, 8, 9]}
{"timestamp": 3000, "input_length": 1024, "output_length": 50, "hash_ids": [7, 8]}
)",
      "t");
  ASSERT_EQ(t.rows.size(), 2u);
  EXPECT_EQ(t.block_tokens, 512);
  EXPECT_EQ(t.rows[0].blocks, (std::vector<int64_t>{7, 8, 9}));
  EXPECT_DOUBLE_EQ(t.rows[1].arrival_s, 3);
  EXPECT_DOUBLE_EQ(t.duration_s(), 3);
}

TEST(Trace, FindsTheTokensOfABlock) {
  // Full blocks only, as vLLM counts them.
  const Trace t = parse_trace(
      R"({"arrival_ms": 1, "prompt": 40, "output": 5, "blocks": [1, 2]}
{"arrival_ms": 2, "prompt": 100, "output": 5, "blocks": [1, 2, 3, 4, 5, 6]})",
      "t");
  EXPECT_EQ(t.block_tokens, 16);
  const Trace said = parse_trace(
      R"({"arrival_s": 1, "prompt": 100, "output": 5, "blocks": ["a"], "block_size": 64})", "t");
  EXPECT_EQ(said.block_tokens, 64);
  EXPECT_EQ(said.rows[0].blocks.size(), 1u);
}

TEST(Trace, ReadsAzure) {
  const Trace t = parse_trace(
      "TIMESTAMP,ContextTokens,GeneratedTokens\r\n"
      "2023-11-16 18:17:03.9799600,4808,10\r\n2023-11-16 18:17:04.0319600,3180,8\r\n",
      "t");
  ASSERT_EQ(t.rows.size(), 2u);
  EXPECT_EQ(t.rows[0].arrival_s, 0);
  EXPECT_NEAR(t.rows[1].arrival_s, 0.052, 1e-6);
  EXPECT_EQ(t.rows[1].prompt_tokens, 3180);
  EXPECT_EQ(t.block_tokens, 0);
}

TEST(Trace, LeavesFailedRequestsOfBurstGptOut) {
  const Trace t = parse_trace(
      "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
      "5,ChatGPT,472,18,490,Conversation log\n45,GPT-4,1087,0,1087,API log\n"
      "46,GPT-4,20,7,27,API log\n",
      "t");
  ASSERT_EQ(t.rows.size(), 2u);
  EXPECT_EQ(t.failed, 1);
  EXPECT_DOUBLE_EQ(t.rows[1].arrival_s, 46);
  EXPECT_EQ(t.rows[1].index, 2);  // positions count what was left out
}

TEST(Trace, ReadsVidurWithAndWithoutArrivals) {
  const Trace t = parse_trace("arrived_at,num_prefill_tokens,num_decode_tokens\n0.5,10,2\n", "t");
  EXPECT_TRUE(t.has_arrivals);
  EXPECT_DOUBLE_EQ(t.rows[0].arrival_s, 0.5);
  const Trace lengths = parse_trace(",num_prefill_tokens,num_decode_tokens\n0,10,2\n", "t");
  EXPECT_FALSE(lengths.has_arrivals);
  EXPECT_EQ(lengths.rows[0].prompt_tokens, 10);
}

TEST(Trace, ReadsVllmBench) {
  const Trace t = parse_trace(
      R"({"model_id": "m", "input_lens": [10, 20, 30], "output_lens": [1, 0, 3],
          "start_times": [100.5, 101, 100]})",
      "t");
  ASSERT_EQ(t.rows.size(), 2u);
  EXPECT_EQ(t.failed, 1);
  EXPECT_EQ(t.rows[0].prompt_tokens, 30);  // by arrival
  EXPECT_DOUBLE_EQ(t.rows[1].arrival_s, 0.5);
}

TEST(Trace, ErrorsNameTheLine) {
  EXPECT_EQ(trace_error("{\"prompt_tokens\": 1, \"output_tokens\": 2}\n{\"prompt_tokens\": 1}"),
            "t:2: output_tokens is missing");
  EXPECT_EQ(trace_error("TIMESTAMP,ContextTokens,GeneratedTokens\n1,2\n"),
            "t:2: output_tokens is missing");
  EXPECT_EQ(trace_error("TIMESTAMP,ContextTokens,GeneratedTokens\n1,x,3\n"),
            "t:2: \"x\" is not a number");
  EXPECT_EQ(trace_error(""), "t: no requests");
  EXPECT_NE(trace_error("a,b\n1,2\n").find("neither JSON lines nor a table"), std::string::npos);
  for (const char* text :
       {"[1]", "{\"prompt\": 1, \"output\": 1", "{\"prompt\": 1e300, \"output\": 1}",
        "{\"prompt\": 1, \"output\": 1, \"hash_ids\": 3}", "{\"prompt\": 1.5, \"output\": 1}",
        "{\"prompt\": 1, \"output\": 1, \"arrival_ms\": -5}",
        "{\"input_lens\": [1], \"output_lens\": [1, 2]}"}) {
    EXPECT_TRUE(trace_error(text).starts_with("t:")) << text << " " << trace_error(text);
  }
}

TEST(Trace, AWordIsNoTime) {
  EXPECT_THROW(parse_trace("{\"arrival_ms\": \"a\", \"prompt\": 5, \"output\": 1}\n", "t"), Error);
  EXPECT_THROW(parse_trace("{\"arrival_s\": 1, \"prompt\": \"5\", \"output\": 1}\n", "t"), Error);
}

TEST(Trace, ReadsDates) {
  EXPECT_EQ(parse_date("1970-01-02 00:00:01.5"), 86401.5);
  EXPECT_EQ(parse_date("2000-03-01T00:00:00Z"), 951868800.);
  EXPECT_EQ(parse_date("1970-01-01 02:00:00+02:00"), 0.);
  for (const char* text : {"", "1970-13-01 00:00:00", "1970-01-01", "1970-01-01 00:00", "x"}) {
    EXPECT_FALSE(parse_date(text)) << text;
  }
}

}  // namespace
}  // namespace ridge
