// The CPU runner times its operators under the names of the lowered list (step/lower.h), in its
// order. Every family of the goldens, prefill and decode.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "engine/golden.h"
#include "engine/runner/profile.h"
#include "engine/runner/runner.h"
#include "step/lower.h"

namespace ridge {
namespace {

using Names = std::vector<std::string>;

bool is_expert_gemm(const std::string& name) {
  return name == "expert_gate_up" || name == "expert_down";
}

// The list has one Op for a group of identical layers: written out layer by layer, as a runner
// goes.
Names lowered(const Model& model, const Plan& plan, const Sequences& step) {
  const Rank rank = make_rank(model, plan);
  std::vector<Op> ops;
  lower(rank, {&step, 1}, ops);
  Names before, after;
  std::vector<Names> groups;
  for (const Op& op : ops) {
    const std::string name = op.name;
    if (name == "attn_norm") groups.emplace_back();
    if (name == "final_norm" || !after.empty()) {
      if (name != "sample") after.push_back(name);
    } else {
      (groups.empty() ? before : groups.back()).push_back(name);
    }
  }
  Names names = before;
  for (const uint16_t group : model.order) {
    names.insert(names.end(), groups.at(group).begin(), groups.at(group).end());
  }
  names.insert(names.end(), after.begin(), after.end());
  return names;
}

// The CPU alternates the two expert GEMMs expert by expert: each once per layer here.
Names executed(const Profile& profile) {
  Names names;
  for (const Profile::Event& event : profile.events()) {
    const std::string name = event.name;
    // Absorbed, latent attention's up-projection runs on queries, and after attention on outputs.
    if (name == "mla_up_kv" && !names.empty() && names.back() == "attention") continue;
    const bool repeated = is_expert_gemm(name) && names.size() >= 2 &&
                          is_expert_gemm(names.back()) && is_expert_gemm(names[names.size() - 2]);
    if (!repeated) names.push_back(name);
  }
  return names;
}

TEST(StepOrder, TheCpuRunnerExecutesTheLoweredList) {
  const std::vector<Golden> all = goldens();
  ASSERT_GE(all.size(), 9u);
  for (const Golden& golden : all) {
    RunnerOptions options;
    options.threads = 1;
    options.cache_tokens = 256;
    const auto runner = make_cpu_runner(load_weights(golden.folder), options);
    const Model& model = runner->weights().model;
    const std::vector<int> pages{0, 1, 2, 3};
    const int prompt = std::min<int>(int(golden.prompt.size()), 3 * options.page_tokens);
    const std::span<const Token> tokens(golden.prompt);
    const auto run = [&](const Slice& slice) {
      Profile profile(true);
      runner->set_profile(&profile);
      runner->run({&slice, 1});
      runner->set_profile(nullptr);
      return executed(profile);
    };
    EXPECT_EQ(run(Slice{tokens.first(size_t(prompt)), 0, pages, 1}),
              lowered(model, runner->plan(), {1, double(prompt), 0, 1}))
        << golden.name;
    EXPECT_EQ(run(Slice{tokens.first(1), prompt, pages, 1}),
              lowered(model, runner->plan(), {1, 1, double(prompt), 1}))
        << golden.name;
    // A chunk before the prompt's last needs no logits.
    EXPECT_EQ(run(Slice{tokens.first(2), 0, pages, 0}),
              lowered(model, runner->plan(), {1, 2, 0, 0}))
        << golden.name;
  }
}

}  // namespace
}  // namespace ridge
