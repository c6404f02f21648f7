// Readers of an Architecture.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "model/architecture.h"
#include "model/gguf.h"

namespace ridge {

// From a Hugging Face config.json (also the built-in models' configs) or a GGUF's metadata. Throws
// Error for families the engine does not execute ("qwen3_next is predicted, not executed; the
// engine runs llama, mistral, ...") and for fields that are absent, out of range or not supported.
Architecture architecture_from_config(const nlohmann::json& config, const std::string& where);
// GGUF stores Llama 3's RoPE scaling in a tensor (rope_freqs.weight): load_weights applies it.
Architecture architecture_from_gguf(const GgufHeader& header, const std::string& where);
// Adds the eos and bos ids that a generation_config.json lists.
void add_generation_config(Architecture& architecture, const nlohmann::json& config,
                           const std::string& where);

}  // namespace ridge
