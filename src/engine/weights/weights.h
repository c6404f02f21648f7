// A model's weights as views, by role, into mapped files (or into memory filled at random).
// Backends read, repack or upload them; only small vectors are converted here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "engine/tokenizer/tokenizer.h"
#include "engine/weights/storage.h"
#include "model/architecture.h"
#include "model/model.h"

namespace ridge {

// A row-major matrix of rows x columns: y[r] = sum over c of w[r][c] x[c]. `data` may have any
// alignment, because it depends on the file (GGUF: 32 bytes, safetensors: wherever its header
// ends).
struct Matrix {
  Storage storage = Storage::f32;
  int64_t rows = 0, columns = 0;
  const std::byte* data = nullptr;  // null: absent
  int64_t row_stride = 0;           // bytes

  explicit operator bool() const { return data != nullptr; }
  const std::byte* row(int64_t r) const { return data + r * row_stride; }
  double bytes() const { return double(rows) * double(storage_bytes(storage, columns)); }
};

using Vector = std::vector<float>;  // norms and biases; empty: absent

struct ExpertBias {
  Vector gate, up, down;
};

struct LayerWeights {
  Vector attn_norm;  // [hidden], before attention; Gemma's + 1 is already added, here and below
  Vector post_attn_norm;  // [hidden], after attention (post_norms)
  Vector mlp_norm;        // [hidden], before the MLP
  Vector post_mlp_norm;   // [hidden]
  Vector q_norm, k_norm;  // [head_dim]
  Matrix q, k, v, out;    // [heads * head_dim x hidden], ..., [hidden x heads * head_dim]
  // Latent attention: no k and v. q_a [q_rank x hidden] and its norm where q_rank is not 0, then
  // q [heads * (nope + rope) x q_rank]; kv_a [kv_rank + rope x hidden], a norm of kv_rank; kv_b
  // [heads * (nope + value) x kv_rank].
  Matrix q_a, kv_a, kv_b;
  Vector q_a_norm, kv_a_norm;
  Vector q_bias, k_bias, v_bias, out_bias;
  Vector sinks;                                // [heads]
  Matrix gate, up, down;                       // [ffn x hidden] x 2, [hidden x ffn]
  Matrix router;                               // [experts x hidden]
  Vector router_bias;                          // [experts]
  Vector router_correction;                    // [experts] (RouterRules::correction)
  Matrix shared_gate, shared_up, shared_down;  // [shared_ffn x hidden] x 2, [hidden x shared_ffn]
  std::vector<Matrix> expert_gate, expert_up, expert_down;  // one per expert
  std::vector<ExpertBias> expert_bias;                      // one per expert, or none
};

struct Weights {
  Architecture architecture;
  Model model;         // the same model for the predictor, with the stored formats
  Matrix embed;        // [vocab x hidden]
  Matrix head;         // [vocab x hidden]; the embedding where tied
  int head_first = 0;  // token of the head's first row: not 0 where ranks share the head
  Vector final_norm;
  std::vector<LayerWeights> layers;
  std::unique_ptr<Tokenizer> tokenizer;  // null: random weights
  std::string source;                    // display name: as given, or "llama-3-8b, random:1"
  std::string described_by;              // path or name of its config or metadata
  double bytes = 0;                      // of the tensors, mapped or allocated
  double copied_bytes = 0;  // of those, copied on loading: rows in another order, fp8, experts
  std::vector<std::shared_ptr<const void>> owners;  // keeps the data alive
};

// `name` is a folder with config.json and *.safetensors, a *.gguf, a *.safetensors next to its
// config.json, a model of the Hugging Face cache ("org/name", hub/hub_cache.h), "ridge-7m" or
// "ridge-1m" (embedded in the program), or empty for ridge-7m.
// Everything is checked before use: bounds, overlaps, shapes against the config. Throws Error.
// Reads only headers and small vectors; matrices are not copied, but for those that files store in
// another form (copied_bytes).
Weights load_weights(const std::string& name);
// "random:SEED" weights for any model description (built-in name, config.json, folder, *.gguf):
// standard deviation 0.02 (norms 1), with the matrices in `storage` (chosen as in convert_weights;
// beside bf16, experts of a model that was released with MXFP4 experts are MXFP4).
// Equal seeds give equal weights for any thread count. Fills memory at close to its write
// bandwidth: block formats are generated as blocks (random integers, matching scales), not
// quantized from floats.
Weights random_weights(const std::string& name, Storage storage, uint64_t seed, int threads);

enum class FileKind : uint8_t { gguf, safetensors };

// Called with the bytes written so far and the total, on the calling thread.
using Progress = std::function<void(double done, double total)>;

struct Converted {
  double bytes = 0;       // of the file or folder
  double bits = 0;        // stored per weight, norms included
  double kept_bytes = 0;  // of matrices whose rows do not fill the storage's blocks
};
// `ridge convert`: writes the weights with all layer matrices, embedding and head in `storage`
// (routers and norms stay f32; rows that do not fill whole blocks use another storage, see
// storage_for), with tokenizer and metadata. GGUF files are as llama.cpp reads them; safetensors as
// transformers does (f32, f16, bf16 only; a folder with config.json and tokenizer.json, which needs
// a folder as source). The output appears complete or not at all. Throws Error.
Converted convert_weights(const Weights& weights, Storage storage, FileKind kind,
                          const std::string& path, const Progress& progress = {});

}  // namespace ridge
