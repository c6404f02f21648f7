// Any bytes as a config.json: an Error or a Model whose figures make sense.
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "base/embedded.h"
#include "base/error.h"
#include "base/json.h"
#include "model/architecture.h"
#include "model/describe.h"
#include "model/read.h"
#include "replay.h"

namespace {

void require(bool holds) {
  if (!holds) std::abort();
}

void check(const ridge::Model& model) {
  using namespace ridge;
  double total = parameters(model), active = active_parameters(model);
  require(std::isfinite(total) && total > 0 && active > 0);
  require(std::isfinite(weight_bytes(model)) && weight_bytes(model) > 0);
  double full = kv_bytes_per_token_full(model, model.kv_format);
  require(full >= kv_bytes_per_token(model, model.kv_format) && full >= 0);
  require(std::isfinite(sequence_bytes(model, 1e6, model.kv_format)));
  int layers = 0;
  for (const LayerGroup& group : model.groups) {
    layers += group.count;
    require(!describe_layer(group.layer).empty());
    for (const Linear& linear : group.layer.linears) {
      require(linear.in > 0 && linear.out > 0 && linear.copies > 0 && linear.format.bits > 0);
    }
  }
  require(layers == model.layers() && layers > 0);
  double sum = 0;
  for (const ParameterGroup& part : parameter_groups(model)) sum += part.parameters;
  require(std::abs(sum - total) <= 1e-9 * total);
  require((model.execution != nullptr) == model.not_executed.empty());
  if (model.execution) require(architecture_of(model).layer_count() == model.layers());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    check(ridge::read_config(ridge::parse_json(text, "fuzz"), "fuzz"));
  } catch (const ridge::Error&) {
  }
  return 0;
}

std::vector<std::string> fuzz_seeds() {
  std::vector<std::string> seeds;
  for (const ridge::EmbeddedFile* file = ridge::kEmbeddedFiles; file->path != nullptr; ++file) {
    if (!std::string_view(file->path).starts_with("models/")) continue;
    seeds.push_back(ridge::parse_json(file->text, file->path).at("config").dump());
  }
  return seeds;
}
