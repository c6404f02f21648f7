#include "model/config_family.h"

#include <algorithm>
#include <string>

#include "model/config_build.h"

namespace ridge {

namespace {

constexpr Toggle kNever{};
constexpr Toggle kAlways{nullptr, true};
constexpr Toggle kTied{"tie_word_embeddings", true};
constexpr Toggle kUseBias{"use_bias", false};

// Defaults of the configuration classes in transformers.
constexpr const char* kLlamaDefaults = R"({"hidden_size": 4096, "intermediate_size": 11008,
  "num_hidden_layers": 32, "num_attention_heads": 32, "vocab_size": 32000,
  "max_position_embeddings": 2048})";
constexpr const char* kMistralDefaults = R"({"hidden_size": 4096, "intermediate_size": 14336,
  "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8,
  "vocab_size": 32000, "max_position_embeddings": 131072, "sliding_window": 4096})";
constexpr const char* kMinistral3Defaults = R"({"hidden_size": 4096, "intermediate_size": 14336,
  "num_hidden_layers": 34, "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128,
  "vocab_size": 131072, "max_position_embeddings": 262144})";
constexpr const char* kMixtralDefaults = R"({"hidden_size": 4096, "intermediate_size": 14336,
  "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8,
  "num_local_experts": 8, "num_experts_per_tok": 2, "vocab_size": 32000,
  "max_position_embeddings": 131072})";
constexpr const char* kQwen2Defaults = R"({"hidden_size": 4096, "intermediate_size": 22016,
  "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 32,
  "vocab_size": 151936, "max_position_embeddings": 32768})";
constexpr const char* kQwen2VlDefaults = R"({"hidden_size": 8192, "intermediate_size": 29568,
  "num_hidden_layers": 80, "num_attention_heads": 64, "num_key_value_heads": 8,
  "vocab_size": 152064, "max_position_embeddings": 32768})";
constexpr const char* kQwen3Defaults = R"({"hidden_size": 4096, "intermediate_size": 22016,
  "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 32, "head_dim": 128,
  "vocab_size": 151936, "max_position_embeddings": 32768})";
constexpr const char* kQwen3MoeDefaults = R"({"hidden_size": 2048, "intermediate_size": 6144,
  "num_hidden_layers": 24, "num_attention_heads": 32, "num_key_value_heads": 4,
  "num_experts": 128, "num_experts_per_tok": 8, "moe_intermediate_size": 768,
  "vocab_size": 151936, "max_position_embeddings": 32768})";
constexpr const char* kGlm4Defaults = R"({"hidden_size": 4096, "intermediate_size": 13696,
  "num_hidden_layers": 40, "num_attention_heads": 32, "num_key_value_heads": 2, "head_dim": 128,
  "vocab_size": 151552, "max_position_embeddings": 131072})";
constexpr const char* kGptOssDefaults = R"({"hidden_size": 2880, "intermediate_size": 2880,
  "num_hidden_layers": 36, "num_attention_heads": 64, "num_key_value_heads": 8, "head_dim": 64,
  "num_local_experts": 128, "num_experts_per_tok": 4, "sliding_window": 128,
  "vocab_size": 201088, "max_position_embeddings": 131072})";
constexpr const char* kGemmaDefaults = R"({"hidden_size": 3072, "intermediate_size": 24576,
  "num_hidden_layers": 28, "num_attention_heads": 16, "num_key_value_heads": 16, "head_dim": 256,
  "vocab_size": 256000, "max_position_embeddings": 8192})";
constexpr const char* kGemma2Defaults = R"({"hidden_size": 2304, "intermediate_size": 9216,
  "num_hidden_layers": 26, "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256,
  "vocab_size": 256000, "max_position_embeddings": 8192, "sliding_window": 4096})";
constexpr const char* kGemma3Defaults = R"({"hidden_size": 2304, "intermediate_size": 9216,
  "num_hidden_layers": 26, "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256,
  "vocab_size": 262208, "max_position_embeddings": 131072, "sliding_window": 4096})";
constexpr const char* kGemma3nDefaults = R"({"hidden_size": 2048, "intermediate_size": 16384,
  "num_hidden_layers": 35, "num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 256,
  "vocab_size": 262400, "vocab_size_per_layer_input": 262144, "hidden_size_per_layer_input": 256,
  "max_position_embeddings": 32768, "sliding_window": 512, "num_kv_shared_layers": 15,
  "laurel_rank": 64, "altup_num_inputs": 4})";
constexpr const char* kDeepseekDefaults = R"({"kv_lora_rank": 512, "qk_nope_head_dim": 128,
  "qk_rope_head_dim": 64, "v_head_dim": 128})";
constexpr const char* kDeepseekV3Defaults = R"({"hidden_size": 7168, "intermediate_size": 18432,
  "moe_intermediate_size": 2048, "num_hidden_layers": 61, "num_attention_heads": 128,
  "n_shared_experts": 1, "n_routed_experts": 256, "num_experts_per_tok": 8,
  "first_k_dense_replace": 3, "kv_lora_rank": 512, "qk_nope_head_dim": 128,
  "qk_rope_head_dim": 64, "v_head_dim": 128, "vocab_size": 129280,
  "max_position_embeddings": 4096})";
constexpr const char* kLlama4Defaults = R"({"hidden_size": 5120, "intermediate_size": 8192,
  "intermediate_size_mlp": 16384, "num_hidden_layers": 48, "num_attention_heads": 40,
  "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 202048, "num_local_experts": 16,
  "num_experts_per_tok": 1, "interleave_moe_layer_step": 1, "attention_chunk_size": 8192,
  "max_position_embeddings": 131072})";

// clang-format off
constexpr Executed kRunLlama{.family = "llama"}, kRunMistral{.family = "mistral"};
constexpr Executed kRunMixtral{.family = "mixtral", .theta = 1e6, .eps = 1e-5, .experts = true,
                               .normalize_top_k = kAlways};
constexpr Executed kRunQwen2{.family = "qwen2"}, kRunQwen3{.family = "qwen3"};
constexpr Executed kRunQwen3Moe{.family = "qwen3_moe", .experts = true,
                                .normalize_top_k = {"norm_topk_prob", false}};
constexpr Executed kRunGemma2{.family = "gemma2", .gemma = true, .post_norms = true,
                              .finish = finish_gemma};
constexpr Executed kRunGemma3{.family = "gemma3_text", .theta = 1e6, .gemma = true,
                              .post_norms = true, .finish = finish_gemma};
constexpr Executed kRunPhi3{.family = "phi3", .eps = 1e-5, .rotary = 1};
constexpr Executed kRunGlm4{.family = "glm4", .eps = 1.5625e-7, .rotary = 0.5, .post_norms = true,
                            .interleaved_rope = true};
constexpr Executed kRunGptOss{.family = "gpt_oss", .theta = 150000, .eps = 1e-5, .experts = true,
                              .normalize_top_k = kAlways, .finish = finish_gpt_oss};
constexpr Executed kRunDeepseekV2{.family = "deepseek_v2", .experts = true, .shared_experts = true,
                                  .normalize_top_k = {"norm_topk_prob", false},
                                  .interleaved_rope = true, .finish = finish_deepseek};
constexpr Executed kRunDeepseekV3{.family = "deepseek_v3", .experts = true, .shared_experts = true,
                                  .normalize_top_k = {"norm_topk_prob", true},
                                  .interleaved_rope = true, .finish = finish_deepseek};
constexpr Executed kRunLlama4{.family = "llama4_text", .theta = 500000, .eps = 1e-5,
                              .experts = true, .shared_experts = true, .interleaved_rope = true,
                              .finish = finish_llama4};
// clang-format on

// A family as another one but for what is named here; the engine runs it only if it says so.
Family named(const Family& like, const char* type, const char* defaults = nullptr,
             const Executed* executed = nullptr) {
  Family family = like;
  family.type = type;
  if (defaults != nullptr) family.defaults = defaults;
  family.executed = executed;
  return family;
}

// clang-format off
std::vector<Family> make_families() {
  const Family llama{.type = "llama", .defaults = kLlamaDefaults, .executed = &kRunLlama};
  const Family mistral{.type = "mistral", .qkv_bias = kNever, .o_bias = kNever,
                       .mlp_bias = kNever, .window = WindowRule::every,
                       .defaults = kMistralDefaults, .executed = &kRunMistral};
  const Family qwen2{.type = "qwen2", .qkv_bias = kAlways, .o_bias = kNever, .mlp_bias = kNever,
                     .window = WindowRule::from, .defaults = kQwen2Defaults,
                     .executed = &kRunQwen2};
  const Family qwen3{.type = "qwen3", .mlp_bias = kNever, .qk_norm = QkNorm::head,
                     .window = WindowRule::from, .defaults = kQwen3Defaults,
                     .executed = &kRunQwen3};
  Family qwen3_moe = named(qwen3, "qwen3_moe", kQwen3MoeDefaults, &kRunQwen3Moe);
  qwen3_moe.window = WindowRule::used;
  const Family gemma{.type = "gemma", .tied = kTied, .mlp_bias = kNever,
                     .defaults = kGemmaDefaults};
  const Family gemma3{.type = "gemma3_text", .tied = kTied, .mlp_bias = kNever, .norms = 4,
                      .qk_norm = QkNorm::head, .window = WindowRule::pattern, .window_pattern = 6,
                      .defaults = kGemma3Defaults, .executed = &kRunGemma3};
  const Family gemma3n{.type = "gemma3n_text", .tied = kTied, .mlp_bias = kNever, .norms = 4,
                       .qk_norm = QkNorm::head, .window = WindowRule::pattern, .window_pattern = 5,
                       .defaults = kGemma3nDefaults, .layer = gemma3n_layer};
  const Family gemma4{.type = "gemma4_text", .tied = kTied, .mlp_bias = kNever, .norms = 4,
                      .qk_norm = QkNorm::head, .layer = gemma4_layer};
  const Family llama4{.type = "llama4_text", .defaults = kLlama4Defaults, .layer = llama4_layer,
                      .executed = &kRunLlama4};
  const Family deepseek_v3{.type = "deepseek_v3", .mlp_bias = kNever, .router_correction = true,
                           .embedding_counts = false, .defaults = kDeepseekV3Defaults,
                           .layer = deepseek_layer, .executed = &kRunDeepseekV3};
  const Family qwen_delta{.type = "qwen3_next", .mlp_bias = kNever, .qk_norm = QkNorm::head,
                          .shared_expert_gate = true, .layer = qwen_delta_layer};
  const Family glm4{.type = "glm4", .o_bias = kNever, .mlp_bias = kNever, .norms = 4,
                    .defaults = kGlm4Defaults, .executed = &kRunGlm4};
  const Family glm4_moe{.type = "glm4_moe", .o_bias = kNever, .mlp_bias = kNever,
                        .qk_norm = QkNorm::head, .qk_norm_on = {"use_qk_norm", false},
                        .router_correction = true, .embedding_counts = false};
  const Family hunyuan{.type = "hunyuan_v1_dense", .mlp_bias = kNever, .qk_norm = QkNorm::head,
                       .qk_norm_on = {"use_qk_norm", true}, .unsupported = "use_cla"};
  const Family phi{.type = "phi", .qkv_bias = kAlways, .o_bias = kAlways, .mlp_bias = kAlways,
                   .head_bias = kAlways, .gated = false, .norm = NormKind::layer,
                   .parallel_norm = kAlways, .unsupported = "qk_layernorm"};
  const Family gptj{.type = "gptj", .qkv_bias = kNever, .o_bias = kNever, .mlp_bias = kAlways,
                    .head_bias = kAlways, .gated = false, .norm = NormKind::layer,
                    .parallel_norm = kAlways};
  const Family minimax{.type = "minimax", .qkv_bias = kNever, .o_bias = kNever, .mlp_bias = kNever,
                       .layer = minimax_layer};
  const Family bailing{.type = "bailing_moe", .qkv_bias = {"use_qkv_bias", false},
                       .o_bias = kUseBias, .mlp_bias = kUseBias};
  const Family lfm2{.type = "lfm2", .tied = {"tie_embedding", true}, .qkv_bias = kNever,
                    .o_bias = kNever, .mlp_bias = kNever, .qk_norm = QkNorm::head,
                    .layer = lfm2_layer};
  const Family granite_hybrid{.type = "granitemoehybrid", .mlp_bias = kNever,
                              .layer = granite_hybrid_layer};

  return {
      // Llama and those that follow it field by field.
      llama, named(llama, "helium"), named(llama, "granite"), named(llama, "smollm3"), named(llama, "cwm"),
      {.type = "arcee", .gated = false},
      {.type = "apertus", .mlp_bias = kNever, .gated = false, .qk_norm = QkNorm::head},
      {.type = "minicpm", .tied = kTied, .mlp_bias = kNever},
      {.type = "seed_oss", .qkv_bias = {"attention_bias", true},
       .o_bias = {"attention_out_bias", false}},
      {.type = "nemotron-nas", .layer = deci_layer},
      llama4, named(llama4, "llama4", nullptr, &kRunLlama4),
      mistral, named(mistral, "ministral"), named(mistral, "ministral3", kMinistral3Defaults),
      named(mistral, "mixtral", kMixtralDefaults, &kRunMixtral), named(mistral, "baichuan", "{}"),
      // Qwen
      {.type = "qwen", .qkv_bias = kAlways, .o_bias = kNever, .mlp_bias = kNever,
       .layer = qwen1_layer},
      qwen2, named(qwen2, "qwen2_vl", kQwen2VlDefaults),
      named(qwen2, "qwen2_vl_text", kQwen2VlDefaults), named(qwen2, "qwen2_5_vl", kQwen2VlDefaults),
      named(qwen2, "qwen2_5_vl_text", kQwen2VlDefaults), named(qwen2, "mimo"),
      {.type = "qwen2_moe", .qkv_bias = {"qkv_bias", true}, .o_bias = kNever, .mlp_bias = kNever,
       .window = WindowRule::from, .shared_expert_gate = true},
      qwen3, qwen3_moe, named(qwen3, "qwen3_vl_text", "{}"),
      named(qwen3, "qwen3_vl_moe_text", "{}"),
      qwen_delta, named(qwen_delta, "qwen3_5_text"), named(qwen_delta, "qwen3_5_moe_text"),
      named(qwen_delta, "qwen3_5"), named(qwen_delta, "qwen3_5_moe"),
      // Gemma
      gemma,
      {.type = "gemma2", .tied = kTied, .mlp_bias = kNever, .norms = 4,
       .window = WindowRule::alternate, .defaults = kGemma2Defaults, .executed = &kRunGemma2},
      gemma3, named(gemma3, "gemma3", nullptr, &kRunGemma3), gemma3n, named(gemma3n, "gemma3n"),
      gemma4,
      named(gemma4, "gemma4"),
      // Phi
      phi,
      {.type = "phi3", .qkv_bias = kNever, .o_bias = kNever, .mlp_bias = kNever,
       .window = WindowRule::every, .executed = &kRunPhi3},
      {.type = "phimoe", .mlp_bias = kNever, .head_bias = {"lm_head_bias", false},
       .norm = NormKind::layer, .window = WindowRule::every},
      // DeepSeek and kin
      {.type = "deepseek", .mlp_bias = kNever, .embedding_counts = false},
      {.type = "deepseek_v2", .mlp_bias = kNever, .embedding_counts = false,
       .defaults = kDeepseekDefaults, .layer = deepseek_layer, .executed = &kRunDeepseekV2},
      deepseek_v3, named(deepseek_v3, "kimi_k2", "{}"), named(deepseek_v3, "glm4_moe_lite", "{}"),
      {.type = "deepseek_v32", .mlp_bias = kNever, .router_correction = true,
       .embedding_counts = false, .layer = deepseek_sparse_layer},
      {.type = "glm_moe_dsa", .mlp_bias = kNever, .router_correction = true,
       .embedding_counts = false, .layer = glm_dsa_layer},
      {.type = "kimi_linear", .mlp_bias = kNever, .router_correction = true,
       .layer = kimi_linear_layer},
      {.type = "dots1", .mlp_bias = kNever, .qk_norm = QkNorm::head, .router_correction = true},
      bailing,
      {.type = "bailing_moe_v2", .qkv_bias = {"use_qkv_bias", false}, .o_bias = kUseBias,
       .mlp_bias = kUseBias, .qk_norm = QkNorm::head, .qk_norm_on = {"use_qk_norm", true},
       .router_correction = true},
      {.type = "step3_text", .layer = step3_layer},
      // GLM
      {.type = "glm", .o_bias = kNever, .mlp_bias = kNever},
      glm4, named(glm4, "glm4v_text", "{}"), glm4_moe, named(glm4_moe, "glm4v_moe_text"),
      {.type = "chatglm", .qkv_bias = {"add_qkv_bias", false}, .o_bias = {"add_bias_linear", false},
       .mlp_bias = {"add_bias_linear", false}, .layer = chatglm_layer},
      // Mixtures of experts
      {.type = "gpt_oss", .qkv_bias = {"attention_bias", true}, .o_bias = {"attention_bias", true},
       .mlp_bias = kAlways, .window = WindowRule::alternate, .embedding_counts = false,
       .defaults = kGptOssDefaults, .layer = gpt_oss_layer, .executed = &kRunGptOss},
      {.type = "minimax_m2", .qkv_bias = kNever, .o_bias = kNever, .mlp_bias = kNever,
       .qk_norm = QkNorm::all_heads, .qk_norm_on = {"use_qk_norm", true},
       .router_correction = true, .embedding_counts = false},
      minimax, named(minimax, "minimax_m1"), named(minimax, "minimax_text_01"),
      {.type = "olmoe", .mlp_bias = kNever, .qk_norm = QkNorm::all_heads},
      {.type = "flex_olmo", .mlp_bias = kNever, .qk_norm = QkNorm::all_heads},
      {.type = "granitemoe", .mlp_bias = kNever}, {.type = "granitemoeshared", .mlp_bias = kNever},
      {.type = "ernie4_5", .tied = kTied, .qkv_bias = kUseBias, .o_bias = kUseBias,
       .mlp_bias = kUseBias},
      {.type = "ernie4_5_moe", .tied = kTied, .qkv_bias = kUseBias, .o_bias = kUseBias,
       .mlp_bias = kUseBias, .head_bias = kUseBias, .router_correction = true},
      hunyuan, named(hunyuan, "hunyuan_v1_moe"), named(hunyuan, "hunyuan"),
      {.type = "dbrx", .qkv_bias = kNever, .o_bias = kNever, .mlp_bias = kNever,
       .layer = dbrx_layer},
      // Hybrids and state-space models
      {.type = "nemotron_h", .gated = false, .router_correction = true, .layer = nemotron_h_layer},
      {.type = "bamba", .layer = bamba_layer},
      granite_hybrid,
      {.type = "jamba", .qkv_bias = kNever, .o_bias = kNever, .mlp_bias = kNever,
       .layer = jamba_layer},
      {.type = "falcon_h1", .layer = falcon_h1_layer},
      {.type = "mamba", .tied = kTied, .norms = 1, .layer = mamba_layer},
      {.type = "falcon_mamba", .tied = kTied, .norms = 1, .layer = mamba_layer},
      {.type = "mamba2", .norms = 1, .layer = mamba2_layer},
      lfm2, named(lfm2, "lfm2_moe"),
      // GPT-2 and the models before Llama
      {.type = "gpt2", .tied = kTied, .qkv_bias = kAlways, .o_bias = kAlways, .mlp_bias = kAlways,
       .gated = false, .norm = NormKind::layer, .learned_positions = true},
      {.type = "gpt_bigcode", .tied = kTied, .qkv_bias = kAlways, .o_bias = kAlways,
       .mlp_bias = kAlways, .gated = false, .norm = NormKind::layer, .learned_positions = true,
       .layer = gpt_bigcode_layer},
      {.type = "gpt_neox", .qkv_bias = {"attention_bias", true}, .o_bias = {"attention_bias", true},
       .mlp_bias = kAlways, .gated = false, .norm = NormKind::layer},
      gptj, named(gptj, "codegen"),
      {.type = "gpt_neo", .tied = kTied, .qkv_bias = kNever, .o_bias = kAlways,
       .mlp_bias = kAlways, .gated = false, .norm = NormKind::layer, .learned_positions = true,
       .layer = gpt_neo_layer},
      {.type = "opt", .tied = kTied, .qkv_bias = {"enable_bias", true},
       .o_bias = {"enable_bias", true}, .mlp_bias = {"enable_bias", true}, .gated = false,
       .norm = NormKind::layer, .learned_positions = true},
      {.type = "bloom", .tied = kTied, .qkv_bias = kAlways, .o_bias = kAlways, .mlp_bias = kAlways,
       .gated = false, .norm = NormKind::layer},
      {.type = "mpt", .tied = kTied, .gated = false, .layer = mpt_layer},
      {.type = "falcon", .tied = kTied, .qkv_bias = {"bias", false}, .o_bias = {"bias", false},
       .mlp_bias = {"bias", false}, .gated = false, .norm = NormKind::layer,
       .layer = falcon_layer},
      {.type = "starcoder2", .tied = kTied, .qkv_bias = {"use_bias", true},
       .o_bias = {"use_bias", true}, .mlp_bias = {"use_bias", true}, .gated = false,
       .norm = NormKind::layer, .window = WindowRule::every},
      {.type = "nemotron", .gated = false, .norm = NormKind::layer},
      {.type = "stablelm", .qkv_bias = {"use_qkv_bias", false}, .o_bias = kNever,
       .mlp_bias = kNever, .norm = NormKind::layer,
       .parallel_norm = {"use_parallel_residual", false}, .qk_norm = QkNorm::all_heads,
       .qk_norm_on = {"qk_layernorm", false}},
      // OLMo, Cohere, Exaone, InternLM
      {.type = "olmo", .mlp_bias = kNever, .norm = NormKind::bare},
      {.type = "olmo2", .mlp_bias = kNever, .qk_norm = QkNorm::all_heads},
      {.type = "olmo3", .mlp_bias = kNever, .qk_norm = QkNorm::all_heads,
       .window = WindowRule::pattern, .window_pattern = 4},
      {.type = "cohere", .tied = kTied, .mlp_bias = kNever, .parallel_norm = kAlways,
       .qk_norm = QkNorm::all_heads, .qk_norm_on = {"use_qk_norm", false}},
      {.type = "cohere2", .tied = kTied, .mlp_bias = kNever, .parallel_norm = kAlways,
       .window = WindowRule::pattern, .window_pattern = 4},
      {.type = "exaone", .tied = kTied, .qkv_bias = kNever, .o_bias = kNever, .mlp_bias = kNever},
      {.type = "exaone4", .qkv_bias = kNever, .o_bias = kNever, .mlp_bias = kNever,
       .qk_norm = QkNorm::head, .window = WindowRule::pattern, .window_pattern = 4},
      {.type = "openelm", .tied = {"share_input_output_layers", true}, .layer = openelm_layer},
      {.type = "internlm", .qkv_bias = {"bias", true}, .o_bias = {"bias", true},
       .mlp_bias = kNever},
      {.type = "internlm2", .qkv_bias = {"bias", true}, .o_bias = {"bias", true},
       .mlp_bias = kNever},
      {.type = "internlm3", .qkv_bias = {"qkv_bias", false}, .o_bias = {"bias", false},
       .mlp_bias = {"bias", false}},
  };
}
// clang-format on

const std::vector<Family>& families() {
  static const std::vector<Family> all = make_families();
  return all;
}

}  // namespace

const Family* find_family(std::string_view type) {
  const auto& all = families();
  auto found = std::find_if(all.begin(), all.end(),
                            [type](const Family& family) { return type == family.type; });
  return found == all.end() ? nullptr : &*found;
}

std::vector<std::string> family_names() {
  std::vector<std::string> names;
  for (const Family& family : families()) names.emplace_back(family.type);
  std::sort(names.begin(), names.end());
  return names;
}

std::vector<std::string> executed_family_names() {
  std::vector<std::string> names;
  for (const Family& family : families()) {
    const std::string_view type = family.type;
    // A wrapper has a row of its own: gemma3 of gemma3_text.
    if (family.executed != nullptr && !type.ends_with("_text")) names.emplace_back(type);
  }
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace ridge
