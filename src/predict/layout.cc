#include "predict/layout.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace ridge {
namespace {

void apply_layout(Request& r, const ParallelLayout& layout) {
  r.plan.tp = layout.tp;
  r.plan.pp = layout.pp;
  r.plan.dp = layout.dp;
  r.plan.ep = layout.ep;
  r.idle = r.system.devices() - r.plan.devices();
}

// From the most tensor parallelism to the least, then from the fewest pipeline stages. Tensor
// parallel ranks share a node.
std::vector<ParallelLayout> possible_layouts(const Request& r, bool keep_ep) {
  int experts = 0;
  for (const LayerGroup& g : r.model->groups) experts = std::max(experts, g.layer.experts);
  std::vector<ParallelLayout> layouts;
  for (int tp = r.system.devices_per_node; tp >= 1; --tp) {
    if (uneven_heads(*r.model, tp) > 0) continue;
    const int groups = r.system.devices_per_node / tp * r.system.nodes;
    for (int pp = 1; pp <= std::min(groups, r.model->layers()); ++pp) {
      if (groups % pp != 0) continue;
      ParallelLayout layout{tp, pp, groups / pp, 1, 0};
      const int ranks = tp * layout.dp;
      if (keep_ep) layout.ep = r.plan.ep;
      if (ranks % layout.ep == 0) layouts.push_back(layout);
      if (keep_ep || ranks == 1 || ranks > experts) continue;
      layout.ep = ranks;
      layouts.push_back(layout);
    }
  }
  return layouts;
}

// How many requests are under way at a given rate depends on the layout; layouts are compared at
// this many.
constexpr double kRateBatch = 64;

struct Trial {
  double tokens_per_s = 0;  // at the request's load; 0: it does not fit
  double bytes = INFINITY;  // per device
};

Trial try_layout(Request r, const ParallelLayout& layout) {
  apply_layout(r, layout);
  const bool endpoint = r.clients || r.rate;
  if (endpoint) {
    r.prompt = endpoint_chunk(r, r.prompt);
    r.batch = r.clients.value_or(kRateBatch);
    r.clients.reset();
    r.rate.reset();
  }
  // Only decode steps are compared, so the prompt's chunks beyond the first need no timing.
  if (r.plan.chunk > 0) r.prompt = std::min(r.prompt, r.plan.chunk);
  r.plan.chunk = 0;
  try {
    Prediction p = predict(r);
    if (endpoint && !p.memory.fits && p.memory.max_batch >= 1) {  // the others wait
      r.batch = p.memory.max_batch;
      p = predict(r);
    }
    return {p.memory.fits ? p.tokens_per_s : 0, p.memory.used()};
  } catch (const Error&) {
    return {};  // the machine lacks a link that this layout needs
  }
}

}  // namespace

int uneven_heads(const Model& model, int tp) {
  for (const LayerGroup& group : model.groups) {
    const Mixer& mixer = group.layer.mixer;
    for (const int heads : {mixer.heads, mixer.value_heads}) {
      if (tp > 0 && heads % tp != 0) return heads;
    }
  }
  return 0;
}

void choose_layout(Request& r, bool keep_ep) {
  r.layouts.clear();
  if (r.system.devices() == 1) return;
  ParallelLayout smallest;
  if (keep_ep) smallest.ep = r.plan.ep;
  double least = INFINITY;
  for (ParallelLayout layout : possible_layouts(r, keep_ep)) {
    const Trial trial = try_layout(r, layout);
    if (trial.bytes < least) {
      least = trial.bytes;
      smallest = layout;
    }
    layout.tokens_per_s = trial.tokens_per_s;
    if (trial.tokens_per_s > 0) r.layouts.push_back(layout);
  }
  std::stable_sort(r.layouts.begin(), r.layouts.end(),
                   [](const ParallelLayout& a, const ParallelLayout& b) {
                     return a.tokens_per_s > b.tokens_per_s;
                   });
  apply_layout(r, r.layouts.empty() ? smallest : r.layouts.front());
}

ParallelLayout layout_of(const Plan& plan) { return {plan.tp, plan.pp, plan.dp, plan.ep, 0}; }

std::string layout_words(const ParallelLayout& layout) {
  std::string words;
  const auto say = [&](const char* name, int degree) {
    if (degree > 1) words += fmt::format("{}{} {}", words.empty() ? "" : ", ", name, degree);
  };
  say("tp", layout.tp);
  say("pp", layout.pp);
  say("dp", layout.dp);
  say("ep", layout.ep);
  return words.empty() ? "one device" : words;
}

}  // namespace ridge
