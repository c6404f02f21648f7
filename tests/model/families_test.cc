// One config of each family against the parameter total of its released checkpoint.
#include <gtest/gtest.h>

#include "base/json.h"
#include "model/read.h"

namespace ridge {
namespace {

struct Released {
  const char* name;
  double parameters;  // safetensors total on Hugging Face
  const char* config;
};

// Fields as released, less those that do not matter here.
// clang-format off
constexpr Released kReleased[] = {
    {"apertus-8b", 8053338176, R"(
        {"model_type": "apertus", "hidden_size": 4096, "num_hidden_layers": 32,
        "num_attention_heads": 32, "num_key_value_heads": 8, "intermediate_size": 21504,
        "vocab_size": 131072, "max_position_embeddings": 65536})"},
    {"aya-expanse-8b", 8028033024, R"(
        {"model_type": "cohere", "hidden_size": 4096, "num_hidden_layers": 32,
        "num_attention_heads": 32, "num_key_value_heads": 8, "intermediate_size": 14336,
        "vocab_size": 256000, "max_position_embeddings": 8192})"},
    {"baichuan2-7b", 7505973248, R"(
        {"model_type": "baichuan", "hidden_size": 4096, "num_hidden_layers": 32,
        "num_attention_heads": 32, "intermediate_size": 11008, "vocab_size": 125696,
        "max_position_embeddings": 4096})"},
    {"bamba-9b", 9780205056, R"(
        {"model_type": "bamba", "hidden_size": 4096, "num_hidden_layers": 32,
        "num_attention_heads": 32, "num_key_value_heads": 8, "intermediate_size": 14336,
        "vocab_size": 128256, "max_position_embeddings": 262144, "attn_layer_indices": [9, 18,
        27], "mamba_n_heads": 128, "mamba_d_head": 64, "mamba_n_groups": 1, "mamba_d_state":
        128, "mamba_d_conv": 4, "mamba_expand": 2})"},
    {"bloom-7b1", 7069016064, R"(
        {"model_type": "bloom", "n_embed": 4096, "n_layer": 30, "num_attention_heads": 32,
        "vocab_size": 250880, "seq_length": 2048})"},
    {"chatglm3-6b", 6243584000, R"(
        {"model_type": "chatglm", "hidden_size": 4096, "num_layers": 28,
        "num_attention_heads": 32, "ffn_hidden_size": 13696, "kv_channels": 128,
        "multi_query_attention": true, "multi_query_group_num": 2, "add_qkv_bias": true,
        "add_bias_linear": false, "padded_vocab_size": 65024, "seq_length": 8192})"},
    {"command-r-plus", 103810674688, R"(
        {"model_type": "cohere", "hidden_size": 12288, "num_hidden_layers": 64,
        "num_attention_heads": 96, "num_key_value_heads": 8, "intermediate_size": 33792,
        "vocab_size": 256000, "max_position_embeddings": 131072, "use_qk_norm": true})"},
    {"dbrx", 131596523520, R"(
        {"model_type": "dbrx", "d_model": 6144, "n_heads": 48, "n_layers": 40, "max_seq_len":
        32768, "vocab_size": 100352, "attn_config": {"kv_n_heads": 8}, "ffn_config":
        {"ffn_hidden_size": 10752, "moe_num_experts": 16, "moe_top_k": 4}})"},
    {"deepseek-moe-16b", 16375728128, R"(
        {"model_type": "deepseek", "hidden_size": 2048, "num_hidden_layers": 28,
        "num_attention_heads": 16, "num_key_value_heads": 16, "intermediate_size": 10944,
        "vocab_size": 102400, "max_position_embeddings": 4096, "moe_intermediate_size": 1408,
        "n_routed_experts": 64, "n_shared_experts": 2, "num_experts_per_tok": 6,
        "first_k_dense_replace": 1, "moe_layer_freq": 1})"},
    {"dots1", 142774381696, R"(
        {"model_type": "dots1", "hidden_size": 4096, "num_hidden_layers": 62,
        "num_attention_heads": 32, "num_key_value_heads": 32, "intermediate_size": 10944,
        "vocab_size": 152064, "max_position_embeddings": 32768, "head_dim": 128,
        "moe_intermediate_size": 1408, "n_routed_experts": 128, "n_shared_experts": 2,
        "num_experts_per_tok": 6, "first_k_dense_replace": 1})"},
    {"ernie-0.3b", 360748032, R"(
        {"model_type": "ernie4_5", "hidden_size": 1024, "num_hidden_layers": 18,
        "num_attention_heads": 16, "num_key_value_heads": 2, "intermediate_size": 3072,
        "vocab_size": 103424, "max_position_embeddings": 131072, "head_dim": 128})"},
    {"ernie-21b", 21825437888, R"(
        {"model_type": "ernie4_5_moe", "hidden_size": 2560, "num_hidden_layers": 28,
        "num_attention_heads": 20, "num_key_value_heads": 4, "intermediate_size": 12288,
        "vocab_size": 103424, "max_position_embeddings": 131072, "moe_num_experts": 64,
        "moe_k": 6, "moe_intermediate_size": 1536, "moe_num_shared_experts": 2,
        "moe_layer_start_index": 1, "moe_layer_interval": 1, "tie_word_embeddings": true})"},
    {"exaone-3.5-7.8b", 7818448896, R"(
        {"model_type": "exaone", "hidden_size": 4096, "num_attention_heads": 32,
        "num_key_value_heads": 8, "intermediate_size": 14336, "vocab_size": 102400,
        "max_position_embeddings": 32768, "num_layers": 32, "tie_word_embeddings": false})"},
    {"exaone-4-1.2b", 1279391488, R"(
        {"model_type": "exaone4", "hidden_size": 2048, "num_hidden_layers": 30,
        "num_attention_heads": 32, "num_key_value_heads": 8, "intermediate_size": 4096,
        "vocab_size": 102400, "max_position_embeddings": 65536, "head_dim": 64,
        "tie_word_embeddings": true})"},
    {"falcon-40b", 41303293952, R"(
        {"model_type": "falcon", "hidden_size": 8192, "num_hidden_layers": 60,
        "num_attention_heads": 128, "vocab_size": 65024, "max_position_embeddings": 2048,
        "num_kv_heads": 8, "new_decoder_architecture": true, "bias": false, "parallel_attn":
        true})"},
    {"falcon-7b", 6921720704, R"(
        {"model_type": "falcon", "hidden_size": 4544, "num_hidden_layers": 32,
        "num_attention_heads": 71, "vocab_size": 65024, "max_position_embeddings": 2048,
        "multi_query": true, "parallel_attn": true, "new_decoder_architecture": false, "bias":
        false, "alibi": false})"},
    {"falcon-mamba-7b", 7272665088, R"(
        {"model_type": "falcon_mamba", "hidden_size": 4096, "num_hidden_layers": 64,
        "intermediate_size": 8192, "state_size": 16, "conv_kernel": 4, "time_step_rank": 256,
        "vocab_size": 65024, "tie_word_embeddings": false})"},
    {"gemma-2b", 2506172416, R"(
        {"model_type": "gemma", "hidden_size": 2048, "num_hidden_layers": 18,
        "num_attention_heads": 8, "num_key_value_heads": 1, "intermediate_size": 16384,
        "vocab_size": 256000, "max_position_embeddings": 8192, "head_dim": 256})"},
    {"gemma-2-9b", 9241705984, R"(
        {"model_type": "gemma2", "hidden_size": 3584, "num_hidden_layers": 42,
        "num_attention_heads": 16, "num_key_value_heads": 8, "intermediate_size": 14336,
        "vocab_size": 256000, "max_position_embeddings": 8192, "head_dim": 256,
        "sliding_window": 4096})"},
    {"gemma-3-1b", 999885952, R"(
        {"model_type": "gemma3_text", "hidden_size": 1152, "num_hidden_layers": 26,
        "num_attention_heads": 4, "num_key_value_heads": 1, "intermediate_size": 6912,
        "vocab_size": 262144, "max_position_embeddings": 32768, "head_dim": 256,
        "sliding_window": 512, "sliding_window_pattern": 6})"},
    {"gemma-3-4b", 4300079472, R"(
        {"model_type": "gemma3", "text_config": {"model_type": "gemma3_text", "hidden_size":
        2560, "intermediate_size": 10240, "num_hidden_layers": 34, "sliding_window": 1024},
        "vision_config": {"hidden_size": 1152, "image_size": 896, "intermediate_size": 4304,
        "model_type": "siglip_vision_model", "num_attention_heads": 16, "num_hidden_layers":
        27, "patch_size": 14}})"},
    {"glm-4-9b-hf", 9399951360, R"(
        {"model_type": "glm", "hidden_size": 4096, "num_hidden_layers": 40,
        "num_attention_heads": 32, "num_key_value_heads": 2, "intermediate_size": 13696,
        "vocab_size": 151552, "max_position_embeddings": 131072, "head_dim": 128,
        "attention_bias": true})"},
    {"glm-4-32b-0414", 32566081536, R"(
        {"model_type": "glm4", "hidden_size": 6144, "num_hidden_layers": 61,
        "num_attention_heads": 48, "num_key_value_heads": 2, "intermediate_size": 23040,
        "vocab_size": 151552, "max_position_embeddings": 32768, "head_dim": 128,
        "attention_bias": false})"},
    {"gpt-j", 6050882784, R"(
        {"model_type": "gptj", "n_embd": 4096, "n_layer": 28, "n_head": 16, "n_positions":
        2048, "n_inner": null, "vocab_size": 50400, "rotary_dim": 64, "tie_word_embeddings":
        false})"},
    {"gpt-neox-20b", 20554567680, R"(
        {"model_type": "gpt_neox", "hidden_size": 6144, "num_hidden_layers": 44,
        "num_attention_heads": 64, "intermediate_size": 24576, "vocab_size": 50432,
        "max_position_embeddings": 2048})"},
    {"gpt2", 124439808, R"(
        {"model_type": "gpt2", "n_embd": 768, "n_layer": 12, "n_head": 12, "n_positions":
        1024, "n_ctx": 1024, "vocab_size": 50257})"},
    {"granite-3.1-8b", 8170864640, R"(
        {"model_type": "granite", "hidden_size": 4096, "num_hidden_layers": 40,
        "num_attention_heads": 32, "num_key_value_heads": 8, "intermediate_size": 12800,
        "vocab_size": 49155, "max_position_embeddings": 131072, "tie_word_embeddings": true})"},
    {"internlm2-7b", 7737708544, R"(
        {"model_type": "internlm2", "hidden_size": 4096, "num_hidden_layers": 32,
        "num_attention_heads": 32, "num_key_value_heads": 8, "intermediate_size": 14336,
        "vocab_size": 92544, "max_position_embeddings": 32768, "bias": false})"},
    {"internlm3-8b", 8804241408, R"(
        {"model_type": "internlm3", "hidden_size": 4096, "num_hidden_layers": 48,
        "num_attention_heads": 32, "num_key_value_heads": 2, "intermediate_size": 10240,
        "vocab_size": 128512, "max_position_embeddings": 32768, "head_dim": 128, "qkv_bias":
        false, "bias": false})"},
    {"jamba", 51570323328, R"(
        {"model_type": "jamba", "hidden_size": 4096, "num_hidden_layers": 32,
        "num_attention_heads": 32, "num_key_value_heads": 8, "intermediate_size": 14336,
        "vocab_size": 65536, "max_position_embeddings": 262144, "attn_layer_period": 8,
        "attn_layer_offset": 4, "expert_layer_period": 2, "expert_layer_offset": 1,
        "num_experts": 16, "num_experts_per_tok": 2, "mamba_d_state": 16, "mamba_d_conv": 4,
        "mamba_expand": 2, "mamba_dt_rank": 256})"},
    {"lfm2-1.2b", 1170340608, R"(
        {"model_type": "lfm2", "hidden_size": 2048, "num_hidden_layers": 16,
        "num_attention_heads": 32, "num_key_value_heads": 8, "block_ff_dim": 12288,
        "block_auto_adjust_ff_dim": true, "block_ffn_dim_multiplier": 1.0,
        "block_multiple_of": 256, "conv_L_cache": 3, "conv_bias": false, "full_attn_idxs": [2,
        5, 8, 10, 12, 14], "vocab_size": 65536, "max_position_embeddings": 128000})"},
    {"ling-mini-2.0", 16255643392, R"(
        {"model_type": "bailing_moe_v2", "hidden_size": 2048, "num_hidden_layers": 20,
        "num_attention_heads": 16, "num_key_value_heads": 4, "intermediate_size": 5120,
        "vocab_size": 157184, "max_position_embeddings": 32768, "head_dim": 128,
        "moe_intermediate_size": 512, "num_experts": 256, "num_experts_per_tok": 8,
        "num_shared_experts": 1, "first_k_dense_replace": 1, "use_qk_norm": true})"},
    {"llava-1.5-7b", 7063427072, R"(
        {"model_type": "llava", "text_config": {"model_type": "llama", "vocab_size": 32064,
        "max_position_embeddings": 4096}, "vision_config": {"model_type": "clip_vision_model",
        "hidden_size": 1024, "image_size": 336, "intermediate_size": 4096,
        "num_attention_heads": 16, "num_hidden_layers": 24, "patch_size": 14}})"},
    {"mamba-2.8b", 2768345600, R"(
        {"model_type": "mamba", "hidden_size": 2560, "num_hidden_layers": 64,
        "intermediate_size": 5120, "state_size": 16, "conv_kernel": 4, "time_step_rank": 160,
        "vocab_size": 50280})"},
    {"mamba-codestral-7b", 7285403648, R"(
        {"model_type": "mamba2", "hidden_size": 4096, "num_hidden_layers": 64, "num_heads":
        128, "head_dim": 64, "n_groups": 8, "state_size": 128, "conv_kernel": 4, "expand": 2,
        "vocab_size": 32768, "tie_word_embeddings": false})"},
    {"moonlight-16b", 15960111936, R"(
        {"model_type": "deepseek_v3", "hidden_size": 2048, "num_hidden_layers": 27,
        "num_attention_heads": 16, "num_key_value_heads": 16, "intermediate_size": 11264,
        "vocab_size": 163840, "max_position_embeddings": 8192, "kv_lora_rank": 512,
        "q_lora_rank": null, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim":
        128, "moe_intermediate_size": 1408, "n_routed_experts": 64, "n_shared_experts": 2,
        "num_experts_per_tok": 6, "first_k_dense_replace": 1, "moe_layer_freq": 1})"},
    {"mpt-7b", 6649286656, R"(
        {"model_type": "mpt", "d_model": 4096, "n_heads": 32, "n_layers": 32,
        "expansion_ratio": 4, "max_seq_len": 2048, "no_bias": true, "vocab_size": 50432,
        "attn_config": {"attn_type": "multihead_attention", "alibi": true}})"},
    {"nemotron-nano-9b-v2", 8888227328, R"(
        {"model_type": "nemotron_h", "hidden_size": 4480, "num_hidden_layers": 56,
        "num_attention_heads": 40, "num_key_value_heads": 8, "intermediate_size": 15680,
        "vocab_size": 131072, "max_position_embeddings": 131072, "head_dim": 128,
        "hybrid_override_pattern": "M-M-M-MM-M-M-M*-M-M-M*-M-M-M-M*-M-M-M-M*-M-MM-M-M-M-M-M-",
        "mamba_num_heads": 128, "mamba_head_dim": 80, "n_groups": 8, "ssm_state_size": 128,
        "conv_kernel": 4})"},
    {"olmo-7b", 6888095744, R"(
        {"model_type": "olmo", "hidden_size": 4096, "num_hidden_layers": 32,
        "num_attention_heads": 32, "num_key_value_heads": 32, "intermediate_size": 11008,
        "vocab_size": 50304, "max_position_embeddings": 2048})"},
    {"olmo-2-7b", 7298617344, R"(
        {"model_type": "olmo2", "hidden_size": 4096, "num_hidden_layers": 32,
        "num_attention_heads": 32, "num_key_value_heads": 32, "intermediate_size": 11008,
        "vocab_size": 100352, "max_position_embeddings": 4096})"},
    {"olmo-3-7b", 7298011136, R"(
        {"model_type": "olmo3", "hidden_size": 4096, "num_hidden_layers": 32,
        "num_attention_heads": 32, "num_key_value_heads": 32, "intermediate_size": 11008,
        "vocab_size": 100278, "max_position_embeddings": 65536, "sliding_window": 4096})"},
    {"olmoe", 6919161856, R"(
        {"model_type": "olmoe", "hidden_size": 2048, "num_hidden_layers": 16,
        "num_attention_heads": 16, "num_key_value_heads": 16, "intermediate_size": 1024,
        "vocab_size": 50304, "max_position_embeddings": 4096, "num_experts": 64,
        "num_experts_per_tok": 8})"},
    {"opt-6.7b", 6658473984, R"(
        {"model_type": "opt", "hidden_size": 4096, "num_hidden_layers": 32,
        "num_attention_heads": 32, "ffn_dim": 16384, "max_position_embeddings": 2048,
        "vocab_size": 50272, "word_embed_proj_dim": 4096})"},
    {"phi-2", 2779683840, R"(
        {"model_type": "phi", "hidden_size": 2560, "num_hidden_layers": 32,
        "num_attention_heads": 32, "num_key_value_heads": null, "intermediate_size": 10240,
        "vocab_size": 51200, "max_position_embeddings": 2048})"},
    {"phi-3.5-moe", 41873153344, R"(
        {"model_type": "phimoe", "hidden_size": 4096, "num_hidden_layers": 32,
        "num_attention_heads": 32, "num_key_value_heads": 8, "intermediate_size": 6400,
        "vocab_size": 32064, "max_position_embeddings": 131072, "num_local_experts": 16,
        "num_experts_per_tok": 2, "attention_bias": true, "lm_head_bias": true})"},
    {"phi-4-mini", 3836021760, R"(
        {"model_type": "phi3", "hidden_size": 3072, "num_hidden_layers": 32,
        "num_attention_heads": 24, "num_key_value_heads": 8, "intermediate_size": 8192,
        "vocab_size": 200064, "max_position_embeddings": 131072, "tie_word_embeddings": true})"},
    {"pythia-6.9b", 6857302016, R"(
        {"model_type": "gpt_neox", "hidden_size": 4096, "num_hidden_layers": 32,
        "num_attention_heads": 32, "intermediate_size": 16384, "vocab_size": 50432,
        "max_position_embeddings": 2048})"},
    {"qwen-7b", 7721324544, R"(
        {"model_type": "qwen", "hidden_size": 4096, "num_hidden_layers": 32,
        "num_attention_heads": 32, "intermediate_size": 22016, "vocab_size": 151936,
        "max_position_embeddings": 8192, "kv_channels": 128, "no_bias": true})"},
    {"qwen1.5-moe-a2.7b", 14315784192, R"(
        {"model_type": "qwen2_moe", "hidden_size": 2048, "num_hidden_layers": 24,
        "num_attention_heads": 16, "num_key_value_heads": 16, "intermediate_size": 5632,
        "vocab_size": 151936, "max_position_embeddings": 8192, "moe_intermediate_size": 1408,
        "shared_expert_intermediate_size": 5632, "num_experts": 60, "num_experts_per_tok": 4,
        "decoder_sparse_step": 1})"},
    {"qwen2-vl-7b", 8291375616, R"(
        {"model_type": "qwen2_vl", "hidden_size": 3584, "num_hidden_layers": 28,
        "num_attention_heads": 28, "num_key_value_heads": 4, "intermediate_size": 18944,
        "vocab_size": 152064, "max_position_embeddings": 32768, "vision_config": {"depth": 32,
        "embed_dim": 1280, "mlp_ratio": 4, "num_heads": 16, "in_chans": 3, "hidden_size":
        3584, "patch_size": 14, "spatial_merge_size": 2, "temporal_patch_size": 2}})"},
    {"qwen3-vl-8b", 8767123696, R"(
        {"model_type": "qwen3_vl", "text_config": {"model_type": "qwen3_vl_text",
        "hidden_size": 4096, "intermediate_size": 12288, "num_hidden_layers": 36,
        "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128, "vocab_size":
        151936, "max_position_embeddings": 262144}, "tie_word_embeddings": false,
        "vision_config": {"deepstack_visual_indexes": [8, 16, 24], "depth": 27, "hidden_size":
        1152, "in_channels": 3, "intermediate_size": 4304, "model_type": "qwen3_vl",
        "num_heads": 16, "num_position_embeddings": 2304, "out_hidden_size": 4096,
        "patch_size": 16, "spatial_merge_size": 2, "temporal_patch_size": 2}})"},
    {"qwen3-next-80b", 79674391296, R"(
        {"model_type": "qwen3_next", "hidden_size": 2048, "num_hidden_layers": 48,
        "num_attention_heads": 16, "num_key_value_heads": 2, "intermediate_size": 5120,
        "vocab_size": 151936, "max_position_embeddings": 262144, "head_dim": 256,
        "moe_intermediate_size": 512, "shared_expert_intermediate_size": 512, "num_experts":
        512, "num_experts_per_tok": 10, "linear_num_key_heads": 16, "linear_num_value_heads":
        32, "linear_key_head_dim": 128, "linear_value_head_dim": 128,
        "linear_conv_kernel_dim": 4, "full_attention_interval": 4, "decoder_sparse_step": 1})"},
    {"seed-oss-36b", 36151104512, R"(
        {"model_type": "seed_oss", "hidden_size": 5120, "num_hidden_layers": 64,
        "num_attention_heads": 80, "num_key_value_heads": 8, "intermediate_size": 27648,
        "vocab_size": 155136, "max_position_embeddings": 524288, "head_dim": 128,
        "attention_bias": true, "attention_out_bias": false})"},
    {"smollm3", 3075098624, R"(
        {"model_type": "smollm3", "hidden_size": 2048, "num_hidden_layers": 36,
        "num_attention_heads": 16, "num_key_value_heads": 4, "intermediate_size": 11008,
        "vocab_size": 128256, "max_position_embeddings": 65536, "tie_word_embeddings": true})"},
    {"stablelm-2-1.6b", 1644515328, R"(
        {"model_type": "stablelm", "hidden_size": 2048, "num_hidden_layers": 24,
        "num_attention_heads": 32, "num_key_value_heads": 32, "intermediate_size": 5632,
        "vocab_size": 100352, "max_position_embeddings": 4096, "use_qkv_bias": true,
        "use_parallel_residual": false, "qk_layernorm": false})"},
    {"starcoder2-3b", 3030371328, R"(
        {"model_type": "starcoder2", "hidden_size": 3072, "num_hidden_layers": 30,
        "num_attention_heads": 24, "num_key_value_heads": 2, "intermediate_size": 12288,
        "vocab_size": 49152, "max_position_embeddings": 16384, "sliding_window": 4096})"},
    {"pixtral-12b", 12682741760, R"(
        {"model_type": "llava", "text_config": {"model_type": "mistral", "hidden_size": 5120,
        "head_dim": 128, "max_position_embeddings": 1024000, "num_hidden_layers": 40,
        "sliding_window": null, "vocab_size": 131072}, "vision_config": {"model_type":
        "pixtral", "head_dim": 64, "hidden_size": 1024, "image_size": 1024,
        "intermediate_size": 4096, "num_attention_heads": 16, "num_hidden_layers": 24,
        "patch_size": 16}})"},
};
// clang-format on

class Families : public testing::TestWithParam<Released> {};

// Norms and routing biases are counted too, so totals agree to far better than a percent; vision
// towers are estimates.
TEST_P(Families, AgreesWithTheCheckpoint) {
  const Released& released = GetParam();
  Model model = read_config(parse_json(released.config, released.name), released.name);
  EXPECT_NEAR(parameters(model) / released.parameters, 1, 5e-4);
}

INSTANTIATE_TEST_SUITE_P(Released, Families, testing::ValuesIn(kReleased), [](const auto& test) {
  std::string name = test.param.name;
  for (char& c : name) c = std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
  return name;
});

}  // namespace
}  // namespace ridge
