#include "engine/weights/architecture_rope.h"

#include <algorithm>
#include <cmath>
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

double yarn_magnitude(double factor, double mscale) {
  return factor <= 1 ? 1 : 0.1 * mscale * std::log(factor) + 1;
}

// Keeps dimensions with many rotations, stretches those with few, with a ramp between. Returns the
// attention factor.
double scale_yarn(const Fields& scaling, double theta, double max_context,
                  std::vector<double>& frequency) {
  const double context =
      scaling.number("original_max_position_embeddings", 1, 1e12).value_or(max_context);
  if (context <= 0) scaling.missing({"original_max_position_embeddings"});
  const double factor = scaling.number("factor", 1e-3, kMaxFactor).value_or(max_context / context);
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

}  // namespace

Rope make_rope(const Fields& scaling, double theta, int head_dim, double max_context) {
  theta = scaling.number("rope_theta", 1.001, 1e15).value_or(theta);
  if (double part = scaling.number("partial_rotary_factor", 0, 1).value_or(1); part != 1) {
    throw Error("{}: partial_rotary_factor {} is not executed, only 1 is", scaling.where(), part);
  }
  auto kind = scaling.text("rope_type");
  if (!kind) kind = scaling.text("type");
  std::vector<double> frequency = plain_frequencies(theta, head_dim);
  double magnitude = 1;
  if (kind == "linear") {
    scale_linear(scaling, frequency);
  } else if (kind == "llama3") {
    scale_llama3(scaling, frequency);
  } else if (kind == "yarn") {
    magnitude = scale_yarn(scaling, theta, max_context, frequency);
  } else if (kind && kind != "default") {
    throw Error("{}: rope scaling \"{}\" is not executed; linear, llama3 and yarn are",
                scaling.where(), kind->substr(0, 40));
  } else if (!kind && scaling.has("factor")) {
    throw Error("{}: rope scaling has a factor but no rope_type", scaling.where());
  }
  Rope rope{.frequency = {}, .magnitude = float(magnitude), .theta = theta};
  for (double each : frequency) rope.frequency.push_back(float(each));
  return rope;
}

}  // namespace ridge
