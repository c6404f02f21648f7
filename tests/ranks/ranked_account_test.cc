// What a ranked run is held against: the ranks' cut, their part of the machine and their link.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "engine/account/ledger.h"
#include "engine/account/roof_system.h"
#include "engine/runner/profile.h"
#include "machine/atlas.h"
#include "ranks/rank_threads.h"
#include "step/lower.h"

namespace ridge {
namespace {

using Names = std::vector<std::string>;

RunnerOptions account_options() {
  RunnerOptions options;
  options.cache_tokens = 256;
  options.max_sequences = 4;
  return options;
}

RankThreads ranked(const RankGrid& grid) {
  return {grid, [] { return load_weights("ridge-1m"); }, account_options()};
}

// Each name once, in the order of the list.
Names lowered_names(const Runner& runner, const Sequences& step) {
  const Rank rank = make_rank(runner.weights().model, runner.plan());
  std::vector<Op> ops;
  lower(rank, {&step, 1}, ops);
  Names names;
  for (const Op& op : ops) {
    if (std::find(names.begin(), names.end(), op.name) == names.end()) names.emplace_back(op.name);
  }
  return names;
}

Profile profile_of_step(Runner& runner, std::span<const Token> tokens) {
  const std::vector<int> pages{0};
  const Slice slice{tokens, 0, pages, 1};
  const TopLogitsRequest greedy;
  Profile profile;
  runner.set_profile(&profile);
  runner.run({&slice, 1});
  runner.top_logits({&greedy, 1});
  runner.set_profile(nullptr);
  return profile;
}

// All but `sample`, which on the CPU is no operator of the step.
TEST(RankedAccount, TheRanksExecuteTheLoweredList) {
  RankThreads ranks = ranked({.tp = 2});
  const std::vector<Token> tokens{1, 2, 3};
  const Profile profile = profile_of_step(ranks.leader(), tokens);
  Names executed;
  for (const Profile::Entry& entry : profile.entries()) executed.emplace_back(entry.name);
  Names lowered = lowered_names(ranks.leader(), {1, 3, 0, 1});
  EXPECT_EQ(lowered.back(), "sample");
  lowered.pop_back();
  EXPECT_EQ(executed, lowered);
  EXPECT_TRUE(std::count(executed.begin(), executed.end(), "attn_all_reduce"));
}

// The operators of all stages come to the leader.
TEST(RankedAccount, AProfileHasTheOperatorsOfAllStages) {
  RankThreads ranks = ranked({.tp = 2, .pp = 2});
  Runner& runner = ranks.leader();
  const std::vector<Token> tokens{1, 2, 3};
  const Profile profile = profile_of_step(runner, tokens);
  std::set<std::string> executed;
  for (const Profile::Entry& entry : profile.entries()) {
    executed.insert(entry.name);
    if (std::string(entry.name) == "qkv") {
      EXPECT_EQ(entry.calls, runner.weights().architecture.layer_count());
    }
  }
  const Names lowered = lowered_names(runner, {1, 3, 0, 1});
  std::set<std::string> expected(lowered.begin(), lowered.end());
  expected.erase("sample");
  EXPECT_EQ(executed, expected);
}

TEST(RankedAccount, RanksTimeTheirLink) {
  for (const RankGrid& grid : {RankGrid{.tp = 2}, RankGrid{.pp = 2}}) {
    RankThreads ranks = ranked(grid);
    const RankPlacement placed = ranks.leader().place_ranks();
    EXPECT_EQ(placed.ranks, 2);
    EXPECT_EQ(placed.per_host, 2);
    ASSERT_TRUE(placed.link);
    EXPECT_EQ(placed.link->name, "shared-memory");
    EXPECT_GT(*placed.link->latency, 1e-8);
    EXPECT_GT(*placed.link->bandwidth, 1e6);
    EXPECT_GT(ranks.leader().read_rate(), 0);
  }
}

TEST(RankedAccount, APredictedStepHasItsAllReduces) {
  RankThreads ranks = ranked({.tp = 2});
  Runner& runner = ranks.leader();
  const Plan plan = runner.plan();
  EXPECT_EQ(plan.tp, 2);
  const RankPlacement placed{2, 2,
                             Link{.name = "shared-memory",
                                  .bandwidth = 1e9,
                                  .latency = 1e-3,
                                  .max_devices = 2,
                                  .p2p = {},
                                  .exchanges = {},
                                  .messages = {},
                                  .copy_bandwidth = {}}};
  const System machine = find_system("ryzen-9950x");
  const System system = with_ranks(machine, plan, placed, 2);
  Ledger ledger;
  const Sequences step{1, 1, 16, 1};
  ledger.record({&step, 1}, 1);
  const Model& model = runner.weights().model;
  const Account cut = ledger.account(model, plan, system, find_stack("ridge"), nullptr);
  Plan whole = plan;
  whole.tp = 1;
  const Account one = ledger.account(model, whole, machine, find_stack("ridge"), nullptr);
  const auto found = [](const Account& account, const std::string& name) {
    for (const OperatorAccount& op : account.operators) {
      if (op.name == name) return op;
    }
    return OperatorAccount{};
  };
  const int layers = runner.weights().architecture.layer_count();
  for (const char* name : {"attn_all_reduce", "mlp_all_reduce"}) {
    EXPECT_EQ(found(cut, name).calls, layers) << name;
    EXPECT_GE(found(cut, name).expected_s, 1e-3 * layers) << name;
    EXPECT_EQ(found(one, name).calls, 0) << name;
  }
  // Half of the weights, and activations.
  EXPECT_LT(found(cut, "gate_up").bytes, 0.6 * found(one, "gate_up").bytes);
  // The call, two sums a layer, the wish for logits and the answer: each at least the latency.
  EXPECT_GE(cut.expected_s, 1e-3 * (2 * layers + 3));
  EXPECT_LT(one.expected_s, 1e-3);
}

TEST(RankedAccount, RanksShareTheMachine) {
  const System machine = find_system("ryzen-9950x");
  const Machine& all = machine.device;
  const auto part = [&](int tp, int pp, int sharing) {
    Plan plan;
    plan.tp = tp, plan.pp = pp;
    return with_ranks(machine, plan, {tp * pp, sharing, {}}, sharing);
  };
  const System tp = part(2, 1, 2), pp = part(1, 2, 2), hosts = part(2, 1, 1);
  EXPECT_EQ(tp.devices(), 2);
  EXPECT_EQ(*tp.device.units, *all.units / 2);
  EXPECT_EQ(*tp.device.peak_of(DType::fp32), *all.peak_of(DType::fp32) / 2);
  EXPECT_EQ(*tp.device.memory().read_bandwidth, *all.memory().read_bandwidth / 2);
  // Stages take turns at the memory, not at each other's cores.
  EXPECT_EQ(*pp.device.memory().read_bandwidth, *all.memory().read_bandwidth);
  EXPECT_EQ(*pp.device.units, *all.units / 2);
  // A host for each rank.
  EXPECT_EQ(hosts.devices(), 2);
  EXPECT_EQ(*hosts.device.units, *all.units);
  // GPUs of two hosts, four each.
  Plan eight;
  eight.tp = 8;
  const System nodes = with_ranks(find_system("h200"), eight, {8, 4, {}}, 1);
  EXPECT_EQ(nodes.nodes, 2);
  EXPECT_EQ(nodes.devices_per_node, 4);
}

}  // namespace
}  // namespace ridge
