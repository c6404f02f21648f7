// Checkpoints in fp8 as they are released: E4M3 with scales of blocks, rows or matrices.
#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"
#include "engine/made_files.h"
#include "engine/reference/forward.h"
#include "engine/runner/runner.h"
#include "engine/weights/load_tensors.h"

namespace ridge {
namespace {

enum class Scales { blocks, rows, matrix };

nlohmann::json config_of(const nlohmann::json& changes = nlohmann::json::object()) {
  nlohmann::json config = made::changed({{"hidden_size", 256}, {"intermediate_size", 384}});
  config.update(changes);
  config["quantization_config"] = {{"quant_method", "fp8"}, {"weight_block_size", {128, 128}}};
  return config;
}

bool is_quantized(const std::string& name, const made::Tensor& tensor) {
  return tensor.shape.size() == 2 && name.find("layers.") != std::string::npos &&
         name.find("mlp.gate.weight") == std::string::npos;
}

// Elements that share a scale with element (row, column).
int64_t scale_of(Scales scales, int64_t row, int64_t column, int64_t columns) {
  switch (scales) {
    case Scales::blocks:
      return row / 128 * ((columns + 127) / 128) + column / 128;
    case Scales::rows:
      return row;
    default:
      return 0;
  }
}

std::vector<int64_t> shape_of(Scales scales, int64_t rows, int64_t columns) {
  switch (scales) {
    case Scales::blocks:
      return {(rows + 127) / 128, (columns + 127) / 128};
    case Scales::rows:
      return {rows, 1};
    default:
      return {};
  }
}

struct Released {
  nlohmann::json header = nlohmann::json::object();
  std::string data;
  void add(const std::string& name, const char* dtype, const std::vector<int64_t>& shape,
           const void* bytes, size_t count) {
    header[name] = {
        {"dtype", dtype}, {"shape", shape}, {"data_offsets", {data.size(), data.size() + count}}};
    data.append(static_cast<const char*>(bytes), count);
  }
  std::string file() const {
    const std::string text = header.dump();
    const uint64_t length = text.size();
    return std::string(reinterpret_cast<const char*>(&length), 8) + text + data;
  }
};

// Writes layer matrices in fp8 and gives them back in `tensors` as what they stand for.
Released release(made::TensorMap& tensors, Scales scales, const std::string& suffix) {
  Released file;
  for (auto& [name, tensor] : tensors) {
    if (!is_quantized(name, tensor)) {
      file.add(name, "F32", tensor.shape, tensor.values.data(), tensor.values.size() * 4);
      continue;
    }
    const int64_t rows = tensor.shape[0], columns = tensor.shape[1];
    const std::vector<int64_t> shape = shape_of(scales, rows, columns);
    int64_t count = 1;
    for (const int64_t extent : shape) count *= extent;
    const auto at = [&, &all = tensor.values](int64_t r, int64_t c) -> float& {
      return all[size_t(r * columns + c)];
    };
    std::vector<float> scale(size_t(count), 0.0f);
    std::vector<uint8_t> codes(tensor.values.size());
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t c = 0; c < columns; ++c) {
        float& most = scale[size_t(scale_of(scales, r, c, columns))];
        most = std::max(most, std::fabs(at(r, c)) / 448);
      }
    }
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t c = 0; c < columns; ++c) {
        const float d = scale[size_t(scale_of(scales, r, c, columns))];
        const uint8_t code = f32_to_e4m3(at(r, c) / d);
        codes[size_t(r * columns + c)] = code;
        at(r, c) = d * e4m3_to_f32(code);
      }
    }
    file.add(name, "F8_E4M3", tensor.shape, codes.data(), codes.size());
    file.add(name + suffix, "F32", shape, scale.data(), scale.size() * 4);
  }
  return file;
}

Weights load(const nlohmann::json& config, const std::string& file) {
  const NamedBytes bytes{file, "released.safetensors"};
  return weights_from_safetensors(config, "config.json", {&bytes, 1});
}

std::string error_of(const nlohmann::json& config, const std::string& file) {
  try {
    load(config, file);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

struct Form {
  Scales scales;
  const char* suffix;
};
constexpr Form kForms[] = {{Scales::blocks, "_scale_inv"},
                           {Scales::blocks, "_scale"},
                           {Scales::rows, "_scale"},
                           {Scales::matrix, "_scale"}};

// Families whose files store rows in another order (glm4), several matrices in one (phi3) and
// experts one by one.
const nlohmann::json kFamilies[] = {
    nlohmann::json::object(),
    {{"model_type", "glm4"}, {"head_dim", 64}, {"attention_bias", true}},
    {{"model_type", "phi3"}},
    {{"model_type", "qwen3_moe"},
     {"head_dim", 64},
     {"num_experts", 4},
     {"num_experts_per_tok", 2},
     {"norm_topk_prob", true},
     {"moe_intermediate_size", 128}}};

TEST(LoadFp8, GivesTheNumbersOfTheFile) {
  for (const nlohmann::json& family : kFamilies) {
    const nlohmann::json config = config_of(family);
    for (const Form& form : kForms) {
      made::TensorMap tensors = made::tensors_of(config);
      if (config["model_type"] == "phi3") made::fuse_matrices(tensors);
      const std::string file = release(tensors, form.scales, form.suffix).file();
      const std::string plain = made::safetensors(tensors, "F32");
      Weights got = load(config, file), want = load(config, plain);
      size_t quantized = 0;
      const auto got_slots = slots_of(got), want_slots = slots_of(want);
      ASSERT_EQ(got_slots.size(), want_slots.size());
      for (size_t i = 0; i < got_slots.size(); ++i) {
        if (!got_slots[i].matrix) continue;
        quantized += got_slots[i].matrix->storage == Storage::fp8;
        ASSERT_EQ(made::values(*got_slots[i].matrix), made::values(*want_slots[i].matrix));
      }
      EXPECT_GE(quantized, 14u);  // seven in each of two layers
      EXPECT_GT(got.copied_bytes, 0);
      EXPECT_EQ(got.model.exact_weight_bytes, got.bytes);
    }
  }
}

// bf16 activations at worst: see Runner's LogitsAreTheSpecifications.
TEST(LoadFp8, RunsAsTheSpecificationDoes) {
  const nlohmann::json config = config_of();
  made::TensorMap tensors = made::tensors_of(config);
  const std::string file = release(tensors, Scales::blocks, "_scale_inv").file();
  std::vector<Token> tokens;
  for (int i = 0; i < 20; ++i) tokens.push_back(Token(i * 7 % 40));
  const std::vector<double> want = reference::forward(load(config, file), tokens);
  RunnerOptions bounds;
  bounds.threads = 1;
  bounds.max_logit_rows = int(tokens.size());
  const auto runner = make_cpu_runner(load(config, file), bounds);
  PagePool pool(16, 16);
  KvSequence sequence(pool);
  std::vector<PageCopy> copies;
  ASSERT_TRUE(sequence.reserve(int(tokens.size()), copies));
  const Slice slice{tokens, 0, sequence.pages(), int(tokens.size())};
  runner->run({&slice, 1});
  const std::span<const float> got = runner->logits();
  ASSERT_EQ(got.size(), want.size());
  double error = 0, norm = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    error += std::pow(got[i] - want[i], 2);
    norm += want[i] * want[i];
  }
  EXPECT_LT(std::sqrt(error / norm), 3 * std::ldexp(1, -8) * std::sqrt(3));
}

TEST(LoadFp8, IgnoresScalesOfActivationsAndOfTheCache) {
  made::TensorMap tensors = made::tensors_of(config_of());
  Released file = release(tensors, Scales::matrix, "_scale");
  const float scale = 0.5f;
  for (const char* name : {"self_attn.q_proj.input_scale", "self_attn.k_proj.output_scale",
                           "self_attn.k_scale", "mlp.down_proj.input_scale_ub"}) {
    file.add("model.layers.0." + std::string(name), "F32", {}, &scale, 4);
  }
  EXPECT_EQ(error_of(config_of(), file.file()), "");
}

TEST(LoadFp8, NamesWhatIsWrong) {
  const std::string name = "model.layers.0.self_attn.q_proj.weight";
  made::TensorMap tensors = made::tensors_of(config_of());
  const Released good = release(tensors, Scales::blocks, "_scale_inv");

  Released without = good;
  without.header.erase(name + "_scale_inv");
  EXPECT_EQ(error_of(config_of(), without.file()),
            "config.json: tensor " + name + "_scale is missing");

  Released odd = good;
  odd.header[name + "_scale_inv"]["shape"] = {4};
  EXPECT_NE(error_of(config_of(), odd.file()).find("4 scales for 256 x 256 weights"),
            std::string::npos);

  Released nan = good;
  nan.data[size_t(nan.header[name]["data_offsets"][0])] = char(0xff);
  EXPECT_EQ(error_of(config_of(), nan.file()),
            "config.json: a matrix in fp8 holds what is no number");

  // Rows of 64 numbers have no whole block.
  nlohmann::json narrow = config_of({{"hidden_size", 64}});
  made::TensorMap small = made::tensors_of(narrow);
  EXPECT_NE(error_of(narrow, release(small, Scales::rows, "_scale").file())
                .find("rows of 64 do not fill blocks of 128 fp8 numbers"),
            std::string::npos);
}

}  // namespace
}  // namespace ridge
