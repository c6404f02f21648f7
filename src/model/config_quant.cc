#include "model/config_quant.h"

#include <algorithm>
#include <cctype>
#include <charconv>

#include "base/error.h"
#include "base/text.h"

namespace ridge {

namespace {

// '*' any run of characters, '?' one. Linear in practice: on a mismatch only the last star moves.
bool glob(std::string_view pattern, std::string_view text, WorkLimit& limit) {
  size_t p = 0, t = 0, star = std::string_view::npos, mark = 0;
  while (t < text.size()) {
    limit.spend();
    if (p < pattern.size() && (pattern[p] == text[t] || pattern[p] == '?')) {
      ++p, ++t;
    } else if (p < pattern.size() && pattern[p] == '*') {
      star = p++, mark = t;
    } else if (star != std::string_view::npos) {
      p = star + 1, t = ++mark;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

// The regular expressions found in these lists use few constructs; they become globs. What does
// not (classes, repeats) becomes '*' as well, the nearest thing.
std::string glob_from_regex(std::string_view regex) {
  std::string out;
  bool open_start = !regex.starts_with("^"), open_end = !regex.ends_with("$");
  for (size_t i = 0; i < regex.size(); ++i) {
    char c = regex[i];
    if (c == '^' || c == '$') continue;
    if (c == '\\' && i + 1 < regex.size()) {
      char next = regex[++i];
      out += std::isalpha(static_cast<unsigned char>(next)) ? '*' : next;
    } else if (c == '.') {
      out += '?';
    } else if (c == '[') {
      while (i < regex.size() && regex[i] != ']') ++i;
      out += '?';
    } else if (c == '*' || c == '+' || c == '{') {
      if (c == '{') {
        while (i < regex.size() && regex[i] != '}') ++i;
      }
      if (!out.empty()) out.pop_back();
      out += '*';
    } else {
      out += c;
    }
  }
  // A regular expression is matched from the start of the module's name, whose prefix we drop.
  if (open_start && !out.starts_with("*")) out.insert(0, "*");
  return open_end && !out.ends_with("*") ? out + "*" : out;
}

// "(a|b)c" -> "ac", "bc"; at most 16 results, enough for the lists in use.
std::vector<std::string> expand_groups(std::string_view regex) {
  std::vector<std::string> done, open{std::string(regex)};
  while (!open.empty() && done.size() + open.size() <= 16) {
    std::string text = std::move(open.back());
    open.pop_back();
    size_t close = text.find(')');
    size_t begin = close == std::string::npos ? close : text.rfind('(', close);
    if (begin == std::string::npos) {
      done.push_back(std::move(text));
      continue;
    }
    std::string_view inside = std::string_view(text).substr(begin + 1, close - begin - 1);
    if (inside.starts_with("?:")) inside.remove_prefix(2);
    for (size_t at = 0; at <= inside.size() && open.size() < 16;) {
      size_t bar = std::min(inside.find('|', at), inside.size());
      open.push_back(text.substr(0, begin) + std::string(inside.substr(at, bar - at)) +
                     text.substr(close + 1));
      at = bar + 1;
    }
  }
  return done;
}

// Wrappers put the language model at different depths; everything before "layers." is dropped.
std::string_view drop_prefix(std::string_view pattern) {
  size_t at = pattern.find("layers.");
  bool component = at != std::string_view::npos && (at == 0 || pattern[at - 1] == '.');
  if (component && pattern.substr(0, at).find('*') == std::string_view::npos) {
    return pattern.substr(at);
  }
  return pattern;
}

// The layer number of "layers.12.mlp", if that is what the pattern names.
std::optional<int> layer_of(std::string_view pattern) {
  constexpr std::string_view kPrefix = "layers.";
  if (!pattern.starts_with(kPrefix)) return std::nullopt;
  std::string_view rest = pattern.substr(kPrefix.size());
  int layer = 0;
  auto [end, status] = std::from_chars(rest.data(), rest.data() + rest.size(), layer);
  bool whole = end == rest.data() + rest.size() || *end == '.';
  return status == std::errc() && whole ? std::optional(layer) : std::nullopt;
}

// The names one of our matrices has in the checkpoints of different families.
std::vector<std::string> paths_of(const Linear& linear) {
  auto under = [](std::initializer_list<const char*> parents, const std::string& name) {
    std::vector<std::string> paths;
    for (const char* parent : parents) paths.push_back(std::string(parent) + name);
    return paths;
  };
  auto last = [&linear] { return linear.name.substr(linear.name.find('.') + 1); };
  switch (linear.stage) {
    case Stage::router:
      return {"mlp.gate", "mlp.router", "block_sparse_moe.gate", "feed_forward.router",
              "mixer.gate"};
    case Stage::expert_in:
    case Stage::expert_out:
      return under(
          {"mlp.experts.", "block_sparse_moe.experts.", "feed_forward.experts.", "mixer.experts."},
          last());
    case Stage::shared_in:
    case Stage::shared_out:
      return under({"mlp.shared_experts.", "mlp.shared_expert.", "feed_forward.shared_expert.",
                    "mixer.shared_experts."},
                   last());
    case Stage::ffn_in:
    case Stage::ffn_out:
      return under({"mlp.", "feed_forward.", "mixer."}, linear.name);
    case Stage::head:
      return {"lm_head"};
    default:
      return under({"self_attn.", "linear_attn.", "mixer.", "mamba."}, linear.name);
  }
}

Format integer_format(int64_t bits, int64_t group, bool zero_point) {
  double overhead = group > 0 ? (16.0 + (zero_point ? double(bits) : 0)) / double(group) : 0;
  std::string name = group > 0 ? fmt::format("int{}-g{}", bits, group) : fmt::format("int{}", bits);
  return {bits > 4 ? DType::int8 : DType::int4, double(bits) + overhead, name};
}

}  // namespace

bool module_matches(std::string_view pattern, std::string_view path, WorkLimit& limit) {
  if (pattern.starts_with("re:")) {
    auto expanded = expand_groups(pattern.substr(3));
    return std::any_of(expanded.begin(), expanded.end(), [&](const std::string& regex) {
      limit.spend(8 * pattern.size());  // for the glob that is made of it
      // The leading "model." of real names is what a pattern such as ".*\.mlp" needs to match.
      return glob(glob_from_regex(regex), "model." + std::string(path), limit);
    });
  }
  // Any run of whole components: "mlp.gate" in "layers.3.mlp.gate", never in "mlp.gate_proj".
  std::vector<size_t> starts{0};
  for (size_t i = 0; i < path.size(); ++i) {
    if (path[i] == '.') starts.push_back(i + 1);
  }
  for (size_t begin : starts) {
    for (size_t next : starts) {
      if (next > begin && glob(pattern, path.substr(begin, next - 1 - begin), limit)) return true;
    }
    if (glob(pattern, path.substr(begin), limit)) return true;
  }
  return false;
}

Quantization::Quantization(const Fields& config, Format dense, std::vector<std::string>& notes)
    : dense_(std::move(dense)),
      format_(dense_),
      matching_(config.where() + ": quantization_config", kMostMatchingSteps) {
  kv_ = dense_.bits == 16 ? dense_ : format_from_name("bf16");
  Fields fields = config.object("quantization_config");
  if (fields.json().empty()) {
    // Older compressed-tensors checkpoints use another key.
    Fields older = config.object("compression_config");
    if (older.json().empty()) return;
    fields = older;
  }
  auto method = fields.text("quant_method");
  if (!method && fields.has("quant_algo")) method = "modelopt";
  if (!method) fields.missing({"quant_method"});
  on_ = true;
  read_method(fields, *method);
  read_ignored(fields);
  notes.push_back(fmt::format("weights as in quantization_config: {} ({})", format_.name, *method));
}

void Quantization::read_method(const Fields& fields, const std::string& method) {
  auto group = [&] { return fields.integer_or({"group_size", "q_group_size"}, 128, -1, 65536); };
  auto bits = [&] { return fields.integer({"bits", "w_bit"}, 2, 8); };
  if (method == "fp8" || method == "fbgemm_fp8") {
    bool block = fields.has("weight_block_size");
    if (block) {
      auto size = fields.integers("weight_block_size", 1, 65536);
      if (size.size() != 2) {
        throw Error("{}: weight_block_size must hold two numbers", fields.where());
      }
      format_ = {DType::fp8, 8 + 32.0 / (double(size[0]) * double(size[1])), "fp8-block"};
    } else {
      format_ = format_from_name("fp8");
    }
  } else if (method == "mxfp4") {
    format_ = format_from_name("mxfp4");
    experts_only_ = true;  // what the method converts in transformers: the expert blocks
  } else if (method == "awq") {
    format_ =
        integer_format(bits(), std::max<int64_t>(group(), 0), fields.flag("zero_point", true));
  } else if (method == "gptq" || method == "gptq_marlin" || method == "auto-round" ||
             method == "intel/auto-round") {
    format_ = integer_format(bits(), std::max<int64_t>(group(), 0), true);
    head_ = fields.flag("lm_head", false);
  } else if (method == "bitsandbytes") {
    bool four = fields.flag("load_in_4bit", fields.flag("_load_in_4bit", false));
    bool eight = fields.flag("load_in_8bit", fields.flag("_load_in_8bit", false));
    if (four == eight) {
      throw Error("{}: one of load_in_4bit and load_in_8bit must be true", fields.where());
    }
    format_ = format_from_name(four ? "nf4" : "int8");
    // Double quantization stores the absmax itself in 8 bits, 256 to an fp32 scale.
    if (four && fields.flag("bnb_4bit_use_double_quant", false)) {
      format_ = {format_.dtype, 4 + 8.0 / 64 + 32.0 / (64 * 256), "nf4-double"};
    }
  } else if (method == "hqq") {
    Fields weights = fields.object("quant_config").object("weight_quant_params");
    int64_t width = weights.integer({"nbits"}, 1, 8);
    int64_t each = weights.integer({"group_size"}, 1, 65536);
    // Scale and zero point both in 16 bits.
    format_ = {width > 4 ? DType::int8 : DType::int4, double(width) + 32.0 / double(each),
               fmt::format("hqq{}-g{}", width, each)};
  } else if (method == "compressed-tensors") {
    read_compressed_tensors(fields);
  } else if (method == "modelopt" || method == "modelopt_fp4") {
    read_modelopt(fields);
  } else {
    throw Error(
        "{}: quant_method \"{}\" is not known: use fp8, mxfp4, modelopt, compressed-tensors, awq, "
        "gptq, bitsandbytes or hqq",
        fields.where(), method);
  }
}

void Quantization::read_compressed_tensors(const Fields& fields) {
  Fields groups = fields.object("config_groups");
  if (groups.json().empty()) fields.missing({"config_groups"});
  for (const auto& [key, value] : groups.json().items()) {
    Fields group(value, groups.where() + ": " + key);
    Fields weights = group.object("weights");
    if (weights.json().empty()) continue;  // activations only
    int64_t bits = weights.integer({"num_bits"}, 2, 16);
    std::string type = weights.text("type").value_or("int");
    int64_t size = std::max<int64_t>(weights.integer_or({"group_size"}, 0, -1, 65536), 0);
    Format format;
    if (type == "float" && bits == 8) {
      bool block = weights.text("strategy").value_or("") == "block";
      format = format_from_name(block ? "fp8-block" : "fp8");
    } else if (type == "float" && bits == 4) {
      format = format_from_name(size == 32 ? "mxfp4" : "nvfp4");
    } else if (type == "int" && bits <= 8) {
      format = integer_format(bits, size, !weights.flag("symmetric", true));
    } else {
      throw Error("{}: weights of type {} with {} bits are not known", group.where(), type, bits);
    }
    groups_.push_back({group.texts("targets"), format});
    if (groups_.size() == 1) format_ = format;
    if (groups_.size() > 64) throw Error("{}: more than 64 groups", groups.where());
  }
  if (groups_.empty()) throw Error("{}: no group has weights", groups.where());
  if (fields.has("kv_cache_scheme")) {
    Fields kv = fields.object("kv_cache_scheme");
    if (kv.integer_or({"num_bits"}, 8, 1, 16) == 8) kv_ = format_from_name("fp8");
  }
}

void Quantization::read_modelopt(const Fields& fields) {
  std::string algorithm = fields.text("quant_algo").value_or("");
  if (algorithm == "FP8") {
    format_ = format_from_name("fp8");
  } else if (algorithm == "NVFP4" || algorithm == "FP4") {
    format_ = format_from_name("nvfp4");
  } else if (algorithm == "MXFP8") {
    format_ = {DType::fp8, 8 + 8.0 / 32, "mxfp8"};
  } else if (algorithm == "W4A16_AWQ" || algorithm == "INT4_AWQ") {
    format_ = format_from_name("int4");
  } else if (algorithm.empty() && fields.has("config_groups")) {
    read_compressed_tensors(fields);
  } else {
    throw Error("{}: quant_algo \"{}\" is not known: use FP8, NVFP4, MXFP8 or W4A16_AWQ",
                fields.where(), algorithm);
  }
  if (fields.text("kv_cache_quant_algo").value_or("") == "FP8") kv_ = format_from_name("fp8");
  if (fields.has("kv_cache_scheme") &&
      fields.object("kv_cache_scheme").integer_or({"num_bits"}, 8, 1, 16) == 8) {
    kv_ = format_from_name("fp8");
  }
}

void Quantization::read_ignored(const Fields& fields) {
  for (const char* key : {"modules_to_not_convert", "ignore", "ignored_layers", "exclude_modules",
                          "llm_int8_skip_modules"}) {
    for (const std::string& pattern : fields.texts(key)) {
      std::string_view kept = drop_prefix(pattern);
      if (kept.size() > 512) throw Error("{}: {} holds an overlong name", fields.where(), key);
      if (auto layer = layer_of(kept)) {
        by_layer_[*layer].emplace_back(kept);
      } else {
        everywhere_.emplace_back(kept);
      }
    }
  }
}

bool Quantization::ignored(const std::string& path, int layer) const {
  auto matches = [&](std::string_view prefix) {
    return [this, full = std::string(prefix) + path](const std::string& pattern) {
      return module_matches(pattern, full, matching_);
    };
  };
  auto cached = everywhere_cache_.find(path);
  if (cached == everywhere_cache_.end()) {
    bool found = std::any_of(everywhere_.begin(), everywhere_.end(), matches("layers.0."));
    cached = everywhere_cache_.emplace(path, found).first;
  }
  if (cached->second) return true;
  auto own = by_layer_.find(layer);
  if (own == by_layer_.end()) return false;
  return std::any_of(own->second.begin(), own->second.end(),
                     matches(fmt::format("layers.{}.", layer)));
}

Format Quantization::format(const Linear& linear, int layer) const {
  // No method quantizes routers: they are tiny and decide everything.
  if (!on_ || linear.stage == Stage::router) return dense_;
  bool expert = linear.stage == Stage::expert_in || linear.stage == Stage::expert_out;
  if (experts_only_ && !expert) return dense_;
  std::vector<std::string> paths = paths_of(linear);
  if (std::any_of(paths.begin(), paths.end(),
                  [&](const std::string& path) { return ignored(path, layer); })) {
    return dense_;
  }
  for (const Group& group : groups_) {
    for (const std::string& target : group.targets) {
      if (target == "Linear") return group.format;
      for (const std::string& path : paths) {
        if (module_matches(target, fmt::format("layers.{}.{}", layer, path), matching_))
          return group.format;
      }
    }
  }
  return groups_.empty() ? format_ : dense_;
}

Format Quantization::head_format() const { return on_ && head_ ? format_ : dense_; }

}  // namespace ridge
