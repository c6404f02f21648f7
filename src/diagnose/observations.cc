#include "diagnose/observations.h"

#include <fmt/format.h>

#include <cmath>

#include "base/error.h"
#include "diagnose/thresholds.h"

namespace ridge {
namespace {

// Zero is a value for what can be absent; a latency, a rate or a power of zero is not measured.
bool may_be_zero(const QuantityInfo& about) {
  switch (about.unit) {
    case QuantityUnit::share:
    case QuantityUnit::bytes_per_s:
    case QuantityUnit::flops_per_s:
    case QuantityUnit::rate:
      return true;
    case QuantityUnit::number:
      return about.quantity != Quantity::batch && about.quantity != Quantity::output &&
             about.quantity != Quantity::prompt;
    case QuantityUnit::seconds:
      return about.quantity == Quantity::queue_time;
    default:
      return false;
  }
}

// What is wrong with the value; empty: nothing.
std::string fault(const Observed& o) {
  const QuantityInfo& about = quantity_info(o.quantity);
  const bool typed = o.trust == Trust::stated;
  if (about.unit == QuantityUnit::share) {
    return o.value >= 0 && o.value <= 1 ? "" : "must be from 0 to 1, or a percentage such as 85%";
  }
  if (!(o.value >= 0 && o.value < 1e18)) return "must be zero or more";
  if (o.value == 0 && (!may_be_zero(about) || (typed && about.unit == QuantityUnit::rate))) {
    return "must be positive";
  }
  return "";
}

void merge_text(std::string& into, const std::string& from, const char* what,
                std::vector<std::string>& conflicts) {
  if (from.empty() || from == into) return;
  if (into.empty()) {
    into = from;
  } else {
    conflicts.push_back(fmt::format("the files name two {}s: {} and {}", what, into, from));
  }
}

template <typename T>
void merge_value(std::optional<T>& into, const std::optional<T>& from) {
  if (!into) into = from;
}

void merge_setup(RunSetup& into, const RunSetup& from, std::vector<std::string>& conflicts) {
  merge_text(into.engine, from.engine, "engine", conflicts);
  merge_text(into.model, from.model, "model", conflicts);
  merge_text(into.device, from.device, "device", conflicts);
  for (const auto field : {&RunSetup::version, &RunSetup::weights, &RunSetup::kv}) {
    if ((into.*field).empty()) into.*field = from.*field;
  }
  for (const auto field :
       {&RunSetup::devices, &RunSetup::tp, &RunSetup::pp, &RunSetup::dp, &RunSetup::ep}) {
    merge_value(into.*field, from.*field);
  }
  merge_value(into.eager, from.eager);
  merge_value(into.prefix_caching, from.prefix_caching);
  merge_value(into.offloaded, from.offloaded);
  if (into.weight_bytes == 0) into.weight_bytes = from.weight_bytes;
}

// A time line says more than a summary; of two, the longer run.
bool says_more(const KernelProfile& a, const KernelProfile* b) {
  if (!b) return true;
  if ((a.busy_s > 0) != (b->busy_s > 0)) return a.busy_s > 0;
  return a.kernel_s > b->kernel_s;
}

// Two sources with the same kind of number over like windows should agree.
void compare_sources(const Observed& a, const Observed& b, Observations& into) {
  const bool instants = a.trust == Trust::instant || b.trust == Trust::instant;
  const bool lifetimes = a.trust == Trust::lifetime || b.trust == Trust::lifetime;
  if (instants || lifetimes || a.value <= 0 || b.value <= 0) return;
  const double ratio = std::max(a.value / b.value, b.value / a.value);
  if (ratio < thresholds::kDisagree) return;
  into.conflicts.push_back(fmt::format("{} is {} by {} and {} by {}",
                                       quantity_info(a.quantity).name,
                                       pretty_quantity(a.quantity, a.value), a.origin,
                                       pretty_quantity(b.quantity, b.value), b.origin));
}

void take(const Observed& o, Observations& into) {
  const std::string problem = fault(o);
  if (!problem.empty()) {
    const QuantityInfo& about = quantity_info(o.quantity);
    if (o.trust == Trust::stated) {
      throw OptionError(about.option, fmt::format("--{} {}", about.option, problem));
    }
    into.conflicts.push_back(fmt::format("{} = {} cannot be: it {}", o.origin, o.value, problem));
    return;
  }
  const Observed*& source = into.source[static_cast<size_t>(o.quantity)];
  if (source) compare_sources(*source, o, into);
  if (source && source->trust >= o.trust) return;
  source = &o;
  into.values[o.quantity] = o.value;
}

}  // namespace

const char* trust_name(Trust trust) {
  static constexpr const char* kNames[] = {"since start", "instant", "window", "stated"};
  return kNames[static_cast<int>(trust)];
}

Trust Observations::trust(Quantity q) const {
  const Observed* from = source[static_cast<size_t>(q)];
  return from ? from->trust : Trust::lifetime;
}

bool Observations::is_recent(Quantity q) const { return has(q) && trust(q) != Trust::lifetime; }

Observations combine(Evidence evidence) {
  Observations all;
  all.evidence = std::move(evidence);
  for (size_t i = 0; i < all.evidence.files.size(); ++i) {
    EvidenceFile& file = all.evidence.files[i];
    merge_setup(all.setup, file.setup, all.conflicts);
    if (file.profile && says_more(*file.profile, all.profile)) all.profile = &*file.profile;
    for (Observed& o : file.observed) {
      o.file = i;
      take(o, all);
    }
  }
  return all;
}

}  // namespace ridge
