#include "diagnose/stated.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "base/units.h"

namespace ridge {
namespace {

// "280 tokens/s" -> "280 tok/s", "6 requests/s" -> "6 req/s".
std::string short_rate(std::string text) {
  for (const std::string_view unit : {"tokens/s", "token/s", "tokens/sec", "tok/sec", "t/s"}) {
    if (!text.ends_with(unit) || text.ends_with("req/s")) continue;
    text.resize(text.size() - unit.size());
    return text + "tok/s";
  }
  for (const std::string_view unit : {"requests/s", "request/s", "rps", "/s"}) {
    if (!text.ends_with(unit) || text.ends_with("tok/s") || text.ends_with("req/s")) continue;
    text.resize(text.size() - unit.size());
    return text + "req/s";
  }
  return text;
}

bool counts_requests(Quantity quantity) {
  return quantity == Quantity::requests_per_s || quantity == Quantity::arrivals_per_s;
}

double parse_stated(Quantity quantity, const std::string& text, const std::string& what) {
  switch (quantity_info(quantity).unit) {
    case QuantityUnit::seconds:
      return parse_latency(text, what);
    case QuantityUnit::rate:
      return parse_quantity(short_rate(text), counts_requests(quantity) ? "req/s" : "tok/s", what);
    case QuantityUnit::watts:
      return parse_quantity(text, "W", what);
    case QuantityUnit::hertz: {
      // A bare number is what nvidia-smi prints: megahertz.
      const bool bare = text.find_first_not_of("0123456789. ") == std::string::npos;
      return parse_quantity(bare ? text + "MHz" : text, "Hz", what);
    }
    default: {
      const double value = parse_quantity(text, "", what);
      // top counts cores: 383 % are nearly four. An engine's loop has one thread, so that a full
      // core is its limit.
      const bool percent = text.find('%') != std::string::npos;
      return quantity == Quantity::cpu && percent ? std::min(value, 1.0) : value;
    }
  }
}

// Engines report speculation as a mean acceptance length (1 + accepted tokens) or as a share of the
// drafts. A length is at least 1.
double accepted_tokens(double value, bool percent, int drafted) {
  if (percent || value < 1) {
    if (drafted == 0) {
      throw OptionError("accepted", "--accepted as a share needs --speculate: drafts per step");
    }
    return value * drafted;
  }
  if (drafted > 0 && value > drafted + 1) {
    throw OptionError(
        "accepted",
        fmt::format("--accepted: {} drafts a step yield at most {} tokens", drafted, drafted + 1));
  }
  return value - 1;
}

}  // namespace

bool StatedOptions::empty() const {
  return std::all_of(text.begin(), text.end(), [](const std::string& t) { return t.empty(); });
}

EvidenceFile stated_evidence(const StatedOptions& options, int drafted) {
  EvidenceFile stated;
  stated.path = "command line";
  stated.kind = "numbers as typed";
  for (const QuantityInfo& about : all_quantities()) {
    const std::string& text = options[about.quantity];
    if (text.empty()) continue;
    const std::string what = std::string("--") + about.option;
    double value = 0;
    try {
      value = parse_stated(about.quantity, text, what);
    } catch (const OptionError&) {
      throw;
    } catch (const Error& error) {
      throw OptionError(about.option, error.what());
    }
    if (about.quantity == Quantity::accepted) {
      value = accepted_tokens(value, text.find('%') != std::string::npos, drafted);
    }
    stated.add(about.quantity, value, Trust::stated, what);
  }
  if (drafted > 0) stated.add(Quantity::drafted, drafted, Trust::stated, "--speculate");
  return stated;
}

}  // namespace ridge
