#include "model/rope.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numbers>
#include <optional>

#include "base/error.h"

namespace ridge {

namespace {

constexpr double kMaxFactor = 1e6;

// theta^(-2 i / dim). The exponent is a float as in transformers; the power is rounded once.
std::vector<double> plain_frequencies(double theta, int dim) {
  std::vector<double> frequency;
  for (int i = 0; i < dim / 2; ++i) {
    frequency.push_back(1.0 / std::pow(theta, double(float(2 * i) / float(dim))));
  }
  return frequency;
}

double required(const Fields& scaling, const char* key, double low, double high) {
  auto value = scaling.number(key, low, high);
  if (!value) scaling.missing({key});
  return *value;
}

void scale_linear(const Fields& scaling, std::vector<double>& frequency) {
  const double factor = required(scaling, "factor", 1e-3, kMaxFactor);
  for (double& each : frequency) each /= factor;
}

// Stretches long wavelengths, keeps short ones and interpolates between them (Llama 3.1).
void scale_llama3(const Fields& scaling, std::vector<double>& frequency) {
  const double factor = required(scaling, "factor", 1e-3, kMaxFactor);
  const double low = required(scaling, "low_freq_factor", 1e-6, kMaxFactor);
  const double high = required(scaling, "high_freq_factor", 1e-6, kMaxFactor);
  const double context = required(scaling, "original_max_position_embeddings", 1, 1e12);
  if (low >= high) {
    throw Error("{}: low_freq_factor must be below high_freq_factor", scaling.where());
  }
  for (double& each : frequency) {
    const double wave = 2 * std::numbers::pi / each;
    if (wave > context / low) {
      each /= factor;
    } else if (wave >= context / high) {
      const double smooth = (context / wave - low) / (high - low);
      each = (1 - smooth) * each / factor + smooth * each;
    }
  }
}

double yarn_context(const Fields& scaling, double max_context) {
  return scaling.number("original_max_position_embeddings", 1, 1e12).value_or(max_context);
}

double yarn_factor(const Fields& scaling, double max_context) {
  if (max_context <= 0 && !scaling.has("factor")) scaling.missing({"factor"});
  return scaling.number("factor", 1e-3, kMaxFactor)
      .value_or(max_context / yarn_context(scaling, max_context));
}

double yarn_magnitude(double factor, double mscale) {
  return factor <= 1 ? 1 : 0.1 * mscale * std::log(factor) + 1;
}

// Keeps dimensions with many rotations, stretches those with few, with a ramp between. Returns the
// attention factor.
double scale_yarn(const Fields& scaling, double theta, double max_context,
                  std::vector<double>& frequency) {
  const double context = yarn_context(scaling, max_context);
  if (context <= 0) scaling.missing({"original_max_position_embeddings"});
  const double factor = yarn_factor(scaling, max_context);
  const double fast = scaling.number("beta_fast", 0, kMaxFactor).value_or(32);
  const double slow = scaling.number("beta_slow", 0, kMaxFactor).value_or(1);
  const bool truncate = scaling.flag("truncate", true);
  const double dim = 2.0 * double(frequency.size());
  auto dimension_of = [&](double turns, double otherwise) {
    const double used = turns > 0 ? turns : otherwise;  // as Python's `or`
    return dim * std::log(context / (used * 2 * std::numbers::pi)) / (2 * std::log(theta));
  };
  double low = dimension_of(fast, 32), high = dimension_of(slow, 1);
  if (truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, dim - 1);
  if (low == high) high += 0.001;
  for (size_t i = 0; i < frequency.size(); ++i) {
    const double ramp = std::clamp((double(i) - low) / (high - low), 0.0, 1.0);
    frequency[i] = frequency[i] / factor * ramp + frequency[i] * (1 - ramp);
  }
  if (auto given = scaling.number("attention_factor", 1e-6, kMaxFactor)) return *given;
  const double mscale = scaling.number("mscale", 0, kMaxFactor).value_or(0);
  const double all = scaling.number("mscale_all_dim", 0, kMaxFactor).value_or(0);
  if (mscale > 0 && all > 0) return yarn_magnitude(factor, mscale) / yarn_magnitude(factor, all);
  return yarn_magnitude(factor, 1);
}

std::optional<std::string> kind_of(const Fields& scaling) {
  const auto kind = scaling.text("rope_type");
  return kind ? kind : scaling.text("type");
}

std::vector<float> divided(const Fields& scaling, const char* key,
                           const std::vector<double>& frequency) {
  if (!scaling.has(key)) scaling.missing({key});
  const nlohmann::json& factors = scaling.json().at(key);
  if (!factors.is_array() || factors.size() != frequency.size()) {
    throw Error("{}: {} must be a list of {} numbers", scaling.where(), key, frequency.size());
  }
  std::vector<float> made;
  for (size_t i = 0; i < frequency.size(); ++i) {
    const double factor = factors[i].is_number() ? factors[i].get<double>() : 0;
    if (!(factor >= 1e-3 && factor <= kMaxFactor)) {
      throw Error("{}: {} must hold numbers from 0.001 to {}", scaling.where(), key, kMaxFactor);
    }
    made.push_back(float(frequency[i] / factor));
  }
  return made;
}

// Phi-3: one divisor per frequency, from another list where the context is longer than the original
// one. The attention factor is that of the whole stretch in both.
Rope long_rope(const Fields& scaling, double theta, const RopeSizes& sizes,
               const std::vector<double>& frequency) {
  const double original =
      scaling.number("original_max_position_embeddings", 2, 1e9).value_or(sizes.original_context);
  if (original <= 0) scaling.missing({"original_max_position_embeddings"});
  const double stretch = sizes.max_context > 0
                             ? sizes.max_context / original
                             : scaling.number("factor", 1e-3, kMaxFactor).value_or(1);
  const double magnitude =
      scaling.number("attention_factor", 1e-6, kMaxFactor)
          .value_or(stretch <= 1 ? 1 : std::sqrt(1 + std::log(stretch) / std::log(original)));
  return {.frequency = divided(scaling, "short_factor", frequency),
          .magnitude = float(magnitude),
          .theta = theta,
          .long_frequency = divided(scaling, "long_factor", frequency),
          .original_context = int(original)};
}

}  // namespace

Rope make_rope(const Fields& scaling, double theta, const RopeSizes& sizes) {
  const double max_context = sizes.max_context;
  theta = scaling.number("rope_theta", 1.001, 1e15).value_or(theta);
  const auto kind = kind_of(scaling);
  std::vector<double> frequency = plain_frequencies(theta, sizes.dims);
  double magnitude = 1;
  if (kind == "linear") {
    scale_linear(scaling, frequency);
  } else if (kind == "llama3") {
    scale_llama3(scaling, frequency);
  } else if (kind == "yarn") {
    magnitude = scale_yarn(scaling, theta, max_context, frequency);
  } else if (kind == "longrope" || kind == "su") {
    return long_rope(scaling, theta, sizes, frequency);
  } else if (kind && kind != "default") {
    throw Error("{}: rope scaling \"{}\" is not executed; linear, llama3, yarn and longrope are",
                scaling.where(), kind->substr(0, 40));
  } else if (!kind && scaling.has("factor")) {
    throw Error("{}: rope scaling has a factor but no rope_type", scaling.where());
  }
  Rope rope{.frequency = {}, .magnitude = float(magnitude), .theta = theta};
  for (double each : frequency) rope.frequency.push_back(float(each));
  return rope;
}

double yarn_softmax_scale(const Fields& scaling, double max_context) {
  const double all = scaling.number("mscale_all_dim", 0, kMaxFactor).value_or(0);
  if (kind_of(scaling) != "yarn" || all == 0) return 1;
  const double magnitude = yarn_magnitude(yarn_factor(scaling, max_context), all);
  return magnitude * magnitude;
}

}  // namespace ridge
