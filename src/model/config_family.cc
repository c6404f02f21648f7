#include "model/config_family.h"

#include <algorithm>
#include <array>

#include "model/config_build.h"

namespace ridge {

namespace {

constexpr Toggle kNever{};
constexpr Toggle kAlways{nullptr, true};
constexpr Toggle kTied{"tie_word_embeddings", true};

const Family kFamilies[] = {
    {.type = "llama"},
    {.type = "mistral", .qkv_bias = kNever, .o_bias = kNever, .window = WindowRule::every},
    {.type = "mixtral", .qkv_bias = kNever, .o_bias = kNever, .window = WindowRule::every},
    {.type = "qwen2", .qkv_bias = kAlways, .o_bias = kNever, .window = WindowRule::from},
    {.type = "qwen3", .qk_norm = QkNorm::head, .window = WindowRule::from},
    {.type = "qwen3_moe", .qk_norm = QkNorm::head, .window = WindowRule::from},
    {.type = "deepseek_v2", .embedding_counts = false, .layer = deepseek_layer},
    {.type = "deepseek_v3",
     .router_correction = true,
     .embedding_counts = false,
     .layer = deepseek_layer},
    {.type = "kimi_k2",
     .router_correction = true,
     .embedding_counts = false,
     .layer = deepseek_layer},
    {.type = "deepseek_v32",
     .router_correction = true,
     .embedding_counts = false,
     .layer = deepseek_sparse_layer},
};

}  // namespace

const Family* find_family(std::string_view type) {
  auto found = std::find_if(std::begin(kFamilies), std::end(kFamilies),
                            [type](const Family& family) { return type == family.type; });
  return found == std::end(kFamilies) ? nullptr : found;
}

std::vector<std::string> family_names() {
  std::vector<std::string> names;
  for (const Family& family : kFamilies) names.emplace_back(family.type);
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace ridge
