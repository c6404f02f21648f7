#include "validate/endpoint_rows.h"

#include <algorithm>
#include <charconv>

namespace ridge {
namespace {

bool contains(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

// "_tp8_0_ep1_0_" and "_tp8_ep1_": the whole number behind `key`; 0: none.
int number_in_id(const std::string& id, std::string_view key) {
  const size_t at = id.rfind(key);
  int value = 0;
  if (at != std::string::npos) {
    std::from_chars(id.data() + at + key.size(), id.data() + id.size(), value);
  }
  return value;
}

bool is_deepseek(const EndpointRow& row) { return contains(row.model, "DeepSeek"); }
bool is_long_prompt(const EndpointRow& row) { return row.prompt > 4 * row.output; }
bool is_long_answer(const EndpointRow& row) { return row.output > 4 * row.prompt; }

// The release as a number: "1.2.0rc6.post2" is 1.2; 0: not known.
double release(const EndpointRow& row) {
  double value = 0;
  std::from_chars(row.version.data(), row.version.data() + row.version.size(), value,
                  std::chars_format::fixed);
  return value;
}

// Until November 2025 the benchmark's script for TensorRT-LLM set the expert and attention ranks
// by the number of clients, and did not record it.
bool is_scripted(const EndpointRow& row) {
  return row.backend == "trtllm" && row.version.empty() && row.is_public() &&
         row.measured <= "2025-11-03" && is_deepseek(row);
}

EndpointLayout scripted_layout(const EndpointRow& row) {
  const int ranks = static_cast<int>(row.tp);
  if (row.system == "h200_sxm") {
    const bool replicas = row.clients > (is_long_prompt(row) ? 32 : 64);
    return {replicas ? 1 : ranks, replicas ? ranks : 1, ranks};
  }
  const double spread = ranks == 4 ? 32 : is_long_answer(row) ? 16 : 8;
  const bool replicas = is_long_prompt(row) ? row.clients > 32 : row.clients >= 256;
  if (replicas) return {1, ranks, ranks};
  return {ranks, 1, row.clients > spread ? ranks : 1};
}

std::optional<EndpointLayout> disaggregated_layout(const EndpointRow& row) {
  if (row.decode_workers < 1 || row.decode_tp < 1 || !contains(row.id, "_cfg")) return std::nullopt;
  EndpointLayout layout;
  layout.tp = static_cast<int>(row.decode_tp);
  layout.dp = static_cast<int>(std::max(1.0, row.decode_dp));
  layout.ep = static_cast<int>(std::max(1.0, row.decode_moe_ep));
  return layout;
}

}  // namespace

bool EndpointRow::is_public() const {
  return id.starts_with("2026_") || contains(id, "_cfg") || contains(id, "gap_analysis");
}

std::optional<EndpointLayout> layout_of(const EndpointRow& row) {
  if (row.disaggregated()) return disaggregated_layout(row);
  if (row.pp > 1) return std::nullopt;
  if (is_scripted(row)) return scripted_layout(row);
  const bool minimax = contains(row.model, "MiniMax");
  double ranks = std::max(1.0, row.tp), ep = std::max(1.0, row.moe_ep);
  const int id_tp = number_in_id(row.id, "_tp"), id_ep = number_in_id(row.id, "_ep");
  if (id_tp > 0 && id_ep > 0 && row.is_public()) {
    ranks = id_tp;
    ep = id_ep;
  } else if (std::max(1.0, row.tp) * std::max(1.0, row.attention_dp) > 8) {
    // The columns hold products: 64 is 8 tensor ranks that are 8 expert ranks, too.
    ranks = std::max(row.moe_tp, 1.0);
    ep = row.moe_ep;
    if (minimax) ranks = row.tp;
  } else if (row.attention_dp > 1) {
    ranks = std::max(row.tp, row.moe_tp * row.moe_ep);
  }
  EndpointLayout layout{static_cast<int>(ranks), 1, static_cast<int>(std::min(ep, ranks))};
  if (minimax) {
    // Attention replicas in these columns are the expert ranks again.
    if (row.attention_dp > 1) layout = {static_cast<int>(row.tp), 1, static_cast<int>(row.tp)};
    if (row.system == "h200_sxm" || (row.system == "b200_sxm" && row.version.starts_with("0.17"))) {
      layout.ep = layout.tp;
    }
    return layout;
  }
  if (row.attention_dp > 1 && row.backend == "trtllm")
    return EndpointLayout{1, layout.tp, layout.tp};
  const int all = static_cast<int>(row.moe_tp * row.moe_ep);
  const int tp = static_cast<int>(std::max(1.0, row.tp));
  if (!row.is_public() && row.backend == "vllm" && all > tp) {
    return EndpointLayout{tp, all / tp, row.moe_ep > 1 ? all : 1};
  }
  if (layout.tp > 8) return std::nullopt;
  return layout;
}

ServerSettings settings_of(const EndpointRow& row, const EndpointLayout& layout) {
  ServerSettings s;
  if (!row.is_public()) return s;
  const bool even = row.prompt == row.output;
  if (row.backend == "sglang" && row.system == "b200_sxm") s.poll = row.clients >= 16 ? 30 : 10;
  if (row.backend == "trtllm") {
    const bool llama = contains(row.model, "Llama");
    const bool newer = release(row) >= 1.2;
    if (llama) {
      s.budget = 16384;
      if (even && layout.tp < 8) s.wait = 20;
    } else if (is_deepseek(row)) {
      s.budget = row.clients + row.prompt + 64;
      if (newer) s.budget = std::max(8192.0, s.budget);
      const bool fp8 = contains(row.quantization, "fp8");
      if (newer && fp8 && row.system == "b200_sxm" && even && row.clients >= 64) s.wait = 40;
    } else {
      s.budget = 20000;
    }
    if (layout.dp > 1) s.wait = std::max(s.wait, 15.0);  // prompts wait for all attention ranks
    // Multi-token prediction, by the dates and the release in which the recipes had it.
    const bool dated = row.measured == "2026-01-14" || row.measured == "2026-02-05" ||
                       row.measured == "2026-02-06" || row.version == "1.2.0rc6.post3";
    if (is_deepseek(row) && dated && !row.disaggregated()) {
      s.drafts = layout.dp > 1 ? 1 : 3;
      s.tokens_per_step = layout.dp > 1 ? 1.5 : is_long_answer(row) ? 2.4 : 2.1;
    }
  } else if (row.backend == "vllm") {
    s.budget = contains(row.model, "MiniMax") && row.system == "b200_sxm" ? 2 * row.prompt : 8192;
  } else {
    s.budget = 16384;
  }
  return s;
}

std::string defect_of(const EndpointRow& row) {
  if (row.disaggregated()) return "";
  if (row.system.starts_with("gb") && row.tp > 8) return "disaggregated, not one group of ranks";
  if (row.backend == "vllm" && contains(row.model, "gpt-oss") && row.system == "h100_sxm" &&
      row.clients >= 512) {
    return "a limit on running sequences that is not recorded";
  }
  if (!row.is_public()) {
    if (row.backend == "vllm" && contains(row.model, "Qwen3-235B")) {
      return "all experts are read whatever the batch";
    }
    if (row.backend == "vllm" && contains(row.model, "Llama-3.1-8B")) return "a warm prefix cache";
    if (row.prompt == 4000 && row.output == 1000) return "no layout gives these times";
  }
  return "";
}

bool first_token_is_cold(const EndpointRow& row) {
  return row.backend == "sglang" && row.is_public() && !row.measured.empty() &&
         row.measured < "2026-01-21" && row.clients >= 32;
}

}  // namespace ridge
