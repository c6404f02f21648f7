// Fields of DeepSeek and Llama 4 that no other family has.
#pragma once

#include <string_view>

#include "engine/weights/architecture.h"
#include "model/config_fields.h"

namespace ridge {

void set_latent_attention(Architecture& made, const Fields& fields);
void set_deepseek_experts(Architecture& made, const Fields& fields, std::string_view family);
// `scaling` holds the RoPE's fields: yarn's mscale_all_dim changes the softmax as well.
float latent_query_scale(const Architecture& made, const Fields& scaling);

void set_llama4_attention(Architecture& made, const Fields& fields);  // ropes[1] rotates nothing
void set_llama4_experts(Architecture& made, const Fields& fields);

}  // namespace ridge
