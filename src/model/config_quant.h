// A config's quantization_config: which matrices are stored in which format.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/work_limit.h"
#include "model/config_fields.h"
#include "model/model.h"

namespace ridge {

// One pattern of a list of modules: "lm_head", "model.layers.*.self_attn", "re:.*mlp.gate$".
// Matches a path such as "layers.3.mlp.gate" when it covers whole components of it.
// Spends a step for each character that is compared.
bool module_matches(std::string_view pattern, std::string_view path, WorkLimit& limit);

// What all patterns of a config may take for all matrices of the model: about a second. 20,000
// names of modules of a model with 60 layers take a tenth. Above: Error.
inline constexpr uint64_t kMostMatchingSteps = 200'000'000;

class Quantization {
 public:
  // `config` is the outermost object: quantization_config stands beside text_config.
  Quantization(const Fields& config, Format dense, std::vector<std::string>& notes);

  const Format& dense() const { return dense_; }  // torch_dtype
  Format format(const Linear& linear, int layer) const;
  Format head_format() const;
  Format kv_format() const { return kv_; }

 private:
  struct Group {  // compressed-tensors: a format for the modules its targets name
    std::vector<std::string> targets;
    Format format;
  };

  void read_method(const Fields& fields, const std::string& method);
  void read_compressed_tensors(const Fields& fields);
  void read_modelopt(const Fields& fields);
  void read_ignored(const Fields& fields);
  bool ignored(const std::string& path, int layer) const;

  Format dense_, kv_;
  bool on_ = false;
  bool experts_only_ = false;
  bool head_ = false;  // the LM head too
  Format format_;
  std::vector<Group> groups_;
  std::vector<std::string> everywhere_;               // patterns without a layer number
  std::map<int, std::vector<std::string>> by_layer_;  // patterns of one layer
  // Answers for `everywhere_`, which does not depend on the layer: long lists are walked once.
  mutable std::map<std::string, bool, std::less<>> everywhere_cache_;
  mutable WorkLimit matching_;
};

}  // namespace ridge
