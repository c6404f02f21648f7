// A config of every family that the engine executes, small enough to run in milliseconds.
#pragma once

namespace ridge {

struct TinyFamily {
  const char* name;
  const char* config;
};

// Small, but with everything that makes the family what it is. Columns fill blocks of 256.
inline const TinyFamily kTinyFamilies[] = {
    {"llama", R"({"model_type":"llama","hidden_size":256,"num_hidden_layers":3,
      "num_attention_heads":8,"num_key_value_heads":2,"intermediate_size":512,"vocab_size":320,
      "rms_norm_eps":1e-5,"rope_theta":10000.0,"max_position_embeddings":512})"},
    {"llama_scaled", R"({"model_type":"llama","hidden_size":256,"num_hidden_layers":2,
      "num_attention_heads":4,"num_key_value_heads":4,"intermediate_size":256,"vocab_size":300,
      "rope_theta":500000.0,"max_position_embeddings":1024,"tie_word_embeddings":true,
      "rope_scaling":{"rope_type":"llama3","factor":8.0,"low_freq_factor":1.0,
      "high_freq_factor":4.0,"original_max_position_embeddings":64}})"},
    {"mistral", R"({"model_type":"mistral","hidden_size":256,"num_hidden_layers":2,
      "num_attention_heads":8,"num_key_value_heads":4,"intermediate_size":512,"vocab_size":300,
      "sliding_window":24,"max_position_embeddings":512})"},
    {"qwen2", R"({"model_type":"qwen2","hidden_size":256,"num_hidden_layers":2,
      "num_attention_heads":4,"num_key_value_heads":2,"intermediate_size":512,"vocab_size":300,
      "max_position_embeddings":512,"rope_theta":1000000.0,"rms_norm_eps":1e-6})"},
    {"qwen3", R"({"model_type":"qwen3","hidden_size":256,"num_hidden_layers":2,"head_dim":64,
      "num_attention_heads":8,"num_key_value_heads":2,"intermediate_size":512,"vocab_size":300,
      "max_position_embeddings":512,"rope_theta":1000000.0,"rms_norm_eps":1e-6})"},
    {"gemma2", R"({"model_type":"gemma2","hidden_size":256,"num_hidden_layers":4,"head_dim":64,
      "num_attention_heads":4,"num_key_value_heads":2,"intermediate_size":512,"vocab_size":300,
      "max_position_embeddings":512,"sliding_window":16,"query_pre_attn_scalar":64,
      "attn_logit_softcapping":50.0,"final_logit_softcapping":30.0,
      "hidden_activation":"gelu_pytorch_tanh"})"},
    {"gemma3", R"({"model_type":"gemma3_text","hidden_size":256,"num_hidden_layers":7,
      "head_dim":64,"num_attention_heads":4,"num_key_value_heads":1,"intermediate_size":512,
      "vocab_size":300,"max_position_embeddings":512,"sliding_window":16,
      "sliding_window_pattern":6,"query_pre_attn_scalar":64,"rope_theta":1000000.0,
      "rope_local_base_freq":10000.0,"hidden_activation":"gelu_pytorch_tanh"})"},
    {"mixtral", R"({"model_type":"mixtral","hidden_size":256,"num_hidden_layers":2,
      "num_attention_heads":4,"num_key_value_heads":2,"intermediate_size":256,"vocab_size":300,
      "num_local_experts":4,"num_experts_per_tok":2,"max_position_embeddings":512})"},
    {"qwen3_moe", R"({"model_type":"qwen3_moe","hidden_size":256,"num_hidden_layers":2,
      "head_dim":64,"num_attention_heads":4,"num_key_value_heads":2,"intermediate_size":512,
      "moe_intermediate_size":256,"num_experts":8,"num_experts_per_tok":3,"norm_topk_prob":true,
      "decoder_sparse_step":1,"mlp_only_layers":[],"vocab_size":300,
      "max_position_embeddings":512})"},
};

}  // namespace ridge
