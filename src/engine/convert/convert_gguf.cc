// A GGUF's header: metadata copied from another GGUF, or derived from a Hugging Face config.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "engine/convert/convert.h"
#include "engine/weights/embedded_model.h"
#include "model/builtin.h"
#include "model/config_fields.h"
#include "model/gguf.h"

namespace ridge {

namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr uint64_t kAlignment = 32;

enum : uint32_t { kU32 = 4, kI32 = 5, kF32 = 6, kBool = 7, kString = 8, kArray = 9 };

template <typename T>
void put(std::string& to, T value) {
  to.append(reinterpret_cast<const char*>(&value), sizeof(value));
}

void put_text(std::string& to, std::string_view text) {
  put(to, uint64_t{text.size()});
  to += text;
}

uint32_t ggml_type(Storage storage) {
  constexpr std::array<uint32_t, kStorageCount> kTypes = {0, 1,  30, 8,  2,  3, 6,
                                                          7, 12, 13, 14, 39, 0};
  return kTypes[size_t(storage)];
}

// llama.cpp's general.file_type: the storage of most tensors in the file.
uint32_t file_type(Storage storage) {
  constexpr std::array<uint32_t, kStorageCount> kTypes = {0, 1,  32, 7,  2,  3, 8,
                                                          9, 14, 16, 18, 38, 0};
  return kTypes[size_t(storage)];
}

}  // namespace

void GgufPairs::begin(std::string_view key, uint32_t type) {
  put_text(bytes_, key);
  put(bytes_, type);
  ++count_;
}
void GgufPairs::begin_list(std::string_view key, uint32_t type, uint64_t count) {
  begin(key, kArray);
  put(bytes_, type);
  put(bytes_, count);
}
void GgufPairs::text(std::string_view key, std::string_view value) {
  begin(key, kString);
  put_text(bytes_, value);
}
void GgufPairs::integer(std::string_view key, uint32_t value) {
  begin(key, kU32);
  put(bytes_, value);
}
void GgufPairs::number(std::string_view key, float value) {
  begin(key, kF32);
  put(bytes_, value);
}
void GgufPairs::flag(std::string_view key, bool value) {
  begin(key, kBool);
  put(bytes_, uint8_t{value});
}
void GgufPairs::texts(std::string_view key, const std::vector<std::string>& values) {
  begin_list(key, kString, values.size());
  for (const std::string& value : values) put_text(bytes_, value);
}
void GgufPairs::integers(std::string_view key, const std::vector<int32_t>& values) {
  begin_list(key, kI32, values.size());
  for (int32_t value : values) put(bytes_, value);
}
void GgufPairs::numbers(std::string_view key, const std::vector<float>& values) {
  begin_list(key, kF32, values.size());
  for (float value : values) put(bytes_, value);
}
void GgufPairs::flags(std::string_view key, const std::vector<bool>& values) {
  begin_list(key, kBool, values.size());
  for (bool value : values) put(bytes_, uint8_t{value});
}
void GgufPairs::raw(std::string_view pair) {
  bytes_ += pair;
  ++count_;
}
void GgufPairs::append(const GgufPairs& other) {
  bytes_ += other.bytes_;
  count_ += other.count_;
}

std::string gguf_head(const GgufPairs& pairs, std::vector<OutTensor>& tensors) {
  std::string head = "GGUF";
  put(head, uint32_t{3});
  put(head, uint64_t{tensors.size()});
  put(head, pairs.count());
  head += pairs.bytes();
  uint64_t offset = 0;
  for (OutTensor& tensor : tensors) {
    put_text(head, tensor.name);
    put(head, uint32_t(tensor.shape.size()));
    for (auto extent = tensor.shape.rbegin(); extent != tensor.shape.rend(); ++extent) {
      put(head, uint64_t(*extent));
    }
    put(head, ggml_type(tensor.storage));
    put(head, offset);
    tensor.offset = offset;
    offset += (tensor.bytes + kAlignment - 1) / kAlignment * kAlignment;
  }
  head.resize((head.size() + kAlignment - 1) / kAlignment * kAlignment);
  for (OutTensor& tensor : tensors) tensor.offset += head.size();
  return head;
}

namespace {

void add_tensor(std::vector<OutTensor>& tensors, const char* name, Vector values) {
  OutTensor tensor;
  tensor.name = name;
  tensor.shape = {int64_t(values.size())};
  tensor.bytes = values.size() * sizeof(float);
  tensor.own = std::move(values);
  tensors.push_back(std::move(tensor));
}

// Latent attention in the form with one kv_b, whose heads are those of plain attention.
constexpr std::string_view kLatentKeys[] = {
    "deepseek2.attention.head_count_kv", "deepseek2.attention.key_length",
    "deepseek2.attention.value_length", "deepseek2.attention.key_length_mla",
    "deepseek2.attention.value_length_mla"};
void write_latent_heads(GgufPairs& pairs, const Architecture& shape) {
  pairs.integer(kLatentKeys[0], uint32_t(shape.heads));
  pairs.integer(kLatentKeys[1], uint32_t(shape.latent.q_head()));
  pairs.integer(kLatentKeys[2], uint32_t(shape.latent.value));
}

// Copies all metadata of the other file except the keys that describe its own data.
void copy_pairs(GgufPairs& pairs, std::string_view file, const std::string& where,
                const Architecture& shape, std::vector<OutTensor>& tensors) {
  const GgufHeader header = parse_gguf(file, where);
  if (shape.latent) write_latent_heads(pairs, shape);
  for (const GgufPair& pair : header.pairs) {
    if (std::find(std::begin(kLatentKeys), std::end(kLatentKeys), pair.key) !=
        std::end(kLatentKeys)) {
      continue;
    }
    if (pair.key == "general.file_type" || pair.key == "general.quantization_version" ||
        pair.key == "general.alignment" || pair.key.starts_with("split.")) {
      continue;
    }
    pairs.raw(file.substr(pair.begin, pair.end - pair.begin));
  }
  auto divisors = header.tensors.find("rope_freqs.weight");
  if (divisors == header.tensors.end() || divisors->second.format.name != "fp32") return;
  Vector values(divisors->second.bytes / sizeof(float));
  std::memcpy(values.data(), file.data() + divisors->second.offset, divisors->second.bytes);
  add_tensor(tensors, "rope_freqs.weight", std::move(values));
}

std::string gguf_name(const std::string& family) {
  if (family == "mistral" || family == "mixtral") return "llama";
  if (family == "gemma3_text") return "gemma3";
  if (family == "qwen3_moe") return "qwen3moe";
  if (family.starts_with("deepseek_v")) return "deepseek2";
  return family;
}

class ConfigPairs {
 public:
  ConfigPairs(GgufPairs& pairs, const Architecture& architecture, const json& config,
              const std::string& where)
      : pairs_(pairs),
        shape_(architecture),
        outer_(config, where),
        fields_(outer_.has("text_config") ? outer_.object("text_config") : outer_),
        name_(gguf_name(architecture.family)) {}

  void write(std::vector<OutTensor>& tensors) {
    integer("block_count", shape_.layer_count());
    if (shape_.max_context > 0) integer("context_length", shape_.max_context);
    integer("embedding_length", shape_.hidden);
    integer("feed_forward_length", shape_.ffn > 0 ? shape_.ffn : shape_.expert_ffn);
    integer("attention.head_count", shape_.heads);
    if (shape_.latent) {
      write_latent();
    } else {
      integer("attention.head_count_kv", shape_.kv_heads);
      integer("attention.key_length", shape_.head_dim);
      integer("attention.value_length", shape_.head_dim);
    }
    integer("vocab_size", shape_.vocab);
    number("attention.layer_norm_rms_epsilon", shape_.norm_eps);
    write_experts();
    write_windows();
    write_ropes(tensors);
    if (shape_.attention_softcap > 0) number("attn_logit_softcapping", shape_.attention_softcap);
    if (shape_.logit_softcap > 0) number("final_logit_softcapping", shape_.logit_softcap);
  }

 private:
  std::string key(const char* name) const { return name_ + "." + name; }
  void integer(const char* name, int value) { pairs_.integer(key(name), uint32_t(value)); }
  void number(const char* name, double value) { pairs_.number(key(name), float(value)); }

  void write_latent() {
    const LatentAttention& latent = shape_.latent;
    write_latent_heads(pairs_, shape_);
    integer("attention.kv_lora_rank", latent.kv_rank);
    if (latent.q_rank > 0) integer("attention.q_lora_rank", latent.q_rank);
  }

  void write_deepseek_experts() {
    const RouterRules& routing = shape_.routing;
    const auto dense = std::count_if(shape_.layers.begin(), shape_.layers.end(),
                                     [](const LayerShape& layer) { return !layer.moe; });
    integer("leading_dense_block_count", int(dense));
    integer("expert_feed_forward_length", shape_.expert_ffn);
    integer("expert_shared_count", shape_.shared_ffn / shape_.expert_ffn);
    number("expert_weights_scale", routing.scale);
    pairs_.flag(key("expert_weights_norm"), shape_.normalize_top_k);
    integer("expert_gating_func", routing.sigmoid ? 2 : 1);
    if (routing.groups > 1) {
      integer("expert_group_count", routing.groups);
      integer("expert_group_used_count", routing.top_groups);
    }
  }

  void write_experts() {
    if (shape_.experts == 0) return;
    integer("expert_count", shape_.experts);
    integer("expert_used_count", shape_.top_k);
    if (shape_.latent) return write_deepseek_experts();
    if (name_ == "qwen3moe") integer("expert_feed_forward_length", shape_.expert_ffn);
    if (!shape_.normalize_top_k) pairs_.flag(key("expert_weights_norm"), false);
  }

  // Writes the pattern only where it differs from llama.cpp's default.
  void write_windows() {
    int window = 0;
    const int period = name_ == "gemma2" ? 2 : name_ == "gemma3" ? 6 : 0;
    bool usual = true;
    std::vector<bool> slides;
    for (const LayerShape& layer : shape_.layers) {
      window = std::max(window, layer.window);
      slides.push_back(layer.window > 0);
      const bool expected = period == 0 || slides.size() % size_t(period) != 0;
      usual = usual && slides.back() == expected;
    }
    if (window == 0) return;
    integer("attention.sliding_window", window);
    if (!usual) pairs_.flags(key("attention.sliding_window_pattern"), slides);
  }

  void write_ropes(std::vector<OutTensor>& tensors) {
    const bool newer = fields_.has("rope_parameters");
    const Fields all = fields_.object(newer ? "rope_parameters" : "rope_scaling");
    const Fields scaling = all.has("full_attention") ? all.object("full_attention") : all;
    integer("rope.dimension_count", shape_.latent ? shape_.latent.rope : shape_.head_dim);
    number("rope.freq_base", shape_.ropes[0].theta);
    if (shape_.ropes.size() > 1 && shape_.ropes[1].theta != 10000) {
      number("rope.freq_base_swa", shape_.ropes[1].theta);
    }
    auto kind = scaling.text("rope_type");
    if (!kind) kind = scaling.text("type");
    if (kind == "llama3") {
      const double theta = shape_.ropes[0].theta;
      Vector divisors;
      for (size_t i = 0; i < shape_.ropes[0].frequency.size(); ++i) {
        const double plain = std::pow(theta, -2.0 * double(i) / shape_.head_dim);
        divisors.push_back(float(plain / double(shape_.ropes[0].frequency[i])));
      }
      add_tensor(tensors, "rope_freqs.weight", std::move(divisors));
    } else if (kind == "linear" || kind == "yarn") {
      const double context =
          scaling.number("original_max_position_embeddings", 1, 1e12).value_or(shape_.max_context);
      const double factor =
          scaling.number("factor", 1e-3, 1e6).value_or(shape_.max_context / context);
      pairs_.text(key("rope.scaling.type"), *kind);
      number("rope.scaling.factor", factor);
      if (kind == "yarn") write_yarn(scaling, factor, context);
    }
    const bool gemma = name_.starts_with("gemma");
    // Written only where it differs from llama.cpp's default: see set_gemma in
    // architecture_gguf.cc.
    const bool large = shape_.layer_count() == (name_ == "gemma2" ? 46 : 62);
    const double usual = large ? double(shape_.hidden) / shape_.heads : double(shape_.head_dim);
    if (gemma && std::fabs(double(shape_.query_scale) * std::sqrt(usual) - 1) > 1e-6) {
      number("attention.scale", shape_.query_scale);
    }
  }

  void write_yarn(const Fields& scaling, double factor, double context) {
    if (!scaling.flag("truncate", true)) {
      throw Error("{}: yarn without truncation has no place in a GGUF", scaling.where());
    }
    integer("rope.scaling.original_context_length", int(context));
    const double usual = factor <= 1 || shape_.latent ? 1 : 0.1 * std::log(factor) + 1;
    const double magnitude = double(shape_.ropes[0].magnitude) / usual;
    if (shape_.latent) {
      if (std::fabs(magnitude - 1) > 1e-6) {
        throw Error("{}: mscale other than mscale_all_dim has no place in a GGUF", scaling.where());
      }
      const double all = scaling.number("mscale_all_dim", 0, 1e6).value_or(0);
      number("rope.scaling.yarn_log_multiplier", 0.1 * all);
    } else if (std::fabs(magnitude - 1) > 1e-6) {
      number("rope.scaling.attn_factor", magnitude);
    }
    for (const char* each : {"beta_fast", "beta_slow"}) {
      if (auto given = scaling.number(each, 0, 1e6)) {
        pairs_.number(fmt::format("{}.rope.scaling.yarn_{}", name_, each), float(*given));
      }
    }
  }

  GgufPairs& pairs_;
  const Architecture& shape_;
  Fields outer_, fields_;
  std::string name_;
};

}  // namespace

GgufPairs gguf_metadata(const Weights& weights, Storage storage, std::vector<OutTensor>& tensors) {
  GgufPairs pairs;
  const std::string& origin = weights.described_by;
  std::error_code error;
  const bool exists = fs::exists(origin, error);
  const fs::path path = origin;
  if (!exists && !embedded_model(origin).empty()) {
    copy_pairs(pairs, embedded_model(origin), origin, weights.architecture, tensors);
  } else if (exists && path.extension() == ".gguf") {
    copy_pairs(pairs, MappedFile(origin).bytes(), origin, weights.architecture, tensors);
  } else {
    fs::path config = path;
    if (fs::is_directory(path, error)) config = path / "config.json";
    if (path.extension() == ".safetensors") config = path.parent_path() / "config.json";
    const json read = exists ? read_json(config.string()) : builtin_config(origin);
    const Architecture& shape = weights.architecture;
    pairs.text("general.architecture", gguf_name(shape.family));
    pairs.text("general.type", "model");
    pairs.text("general.name", weights.model.title.empty() ? weights.source : weights.model.title);
    ConfigPairs(pairs, shape, read, config.string()).write(tensors);
    const std::string folder = config.parent_path().string();
    if (exists && fs::exists(config.parent_path() / "tokenizer.json")) {
      add_gguf_vocabulary(pairs, weights, folder.empty() ? "." : folder);
    } else {
      pairs.text("tokenizer.ggml.model", "no_vocab");
    }
  }
  pairs.integer("general.file_type", file_type(storage));
  pairs.integer("general.quantization_version", 2);
  return pairs;
}

}  // namespace ridge
