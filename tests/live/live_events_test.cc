// Events of the live stream as text: what a client puts together from them is what was there.
#include <gtest/gtest.h>

#include <map>

#include "base/random.h"
#include "live/live_json.h"
#include "live/live_steps.h"

namespace ridge {
namespace {

nlohmann::json data_of(const std::string& event, const std::string& name) {
  const std::string head = "event: " + name + "\ndata: ";
  EXPECT_TRUE(event.starts_with(head)) << event;
  EXPECT_TRUE(event.ends_with("\n\n"));
  EXPECT_EQ(event.find('\n', head.size()), event.size() - 2);
  return nlohmann::json::parse(event.substr(head.size()));
}

struct Totals {
  int steps = 0, tokens = 0, rows = 0, accepted = 0;
  double measured = 0;
  bool operator==(const Totals&) const = default;
};

TEST(LiveSteps, KeepTheirSumsWhenTheyAreMerged) {
  SplitMix64 random(3);
  const ServingClock::time_point start = ServingClock::now();
  for (int round = 0; round < 50; ++round) {
    std::vector<StepGroup> groups;
    Totals given;
    ServingClock::time_point at = start;
    const int count = 1 + int(random.next() % 300);
    for (int i = 0; i < count; ++i) {
      StepReport report;
      std::vector<StepRow> rows;
      const bool empty = random.next() % 20 == 0;
      report.measured_s = empty ? 0 : double(1 + random.next() % 8) / 1024;
      report.wall = Wall(random.next() % 3);
      report.began = at;
      at += std::chrono::milliseconds(1);
      report.ended = at;
      for (uint64_t s = 0; s < random.next() % 5 && !empty; ++s) {
        const bool prefill = random.next() % 10 == 0;
        rows.push_back({.id = 1 + 2 * s + random.next() % 2,
                        .kind = prefill ? StepRow::Kind::prefill : StepRow::Kind::draft,
                        .tokens = int(random.next() % 4),
                        .accepted = int(random.next() % 3)});
        ++(prefill ? report.prefill_sequences : report.decode_sequences);
        report.generated_tokens += rows.back().tokens;
        given.accepted += rows.back().accepted;
      }
      report.rows = rows;
      given.steps += empty ? 0 : 1;
      given.tokens += report.generated_tokens;
      given.measured += report.measured_s;
      groups.emplace_back(report);
    }
    given.rows = given.tokens;
    const size_t most = 1 + random.next() % 8;
    merge_groups(groups, most);
    EXPECT_LE(groups.size(), std::max<size_t>(most, 1));
    Totals kept;
    ServingClock::time_point last = start;
    for (const StepGroup& group : groups) {
      kept.steps += group.steps;
      kept.tokens += group.sum.generated_tokens;
      kept.measured += group.sum.measured_s;
      std::map<std::pair<RequestId, int>, int> seen;
      for (const StepRow& row : group.rows) {
        kept.rows += row.tokens;
        kept.accepted += row.accepted;
        EXPECT_EQ((seen[{row.id, int(row.kind)}]++), 0);  // one row for each
      }
      EXPECT_GE(group.sum.began, last);  // in order
      last = group.sum.began;
    }
    EXPECT_EQ(kept, given);
  }
}

TEST(LiveSteps, AreWrittenWithNullsWhereNothingIsPredicted) {
  const ServingClock::time_point start = ServingClock::now();
  const std::vector<StepRow> rows{
      {.id = 3, .kind = StepRow::Kind::prefill, .tokens = 16},
      {.id = 4, .kind = StepRow::Kind::draft, .tokens = 3, .accepted = 2, .drafts = 4}};
  StepReport report;
  report.measured_s = 0.25;
  report.generated_tokens = 3;
  report.began = start + std::chrono::seconds(1);
  report.ended = start + std::chrono::milliseconds(1250);
  report.rows = rows;
  std::vector<StepGroup> groups{StepGroup(report)};
  const nlohmann::json data = data_of(steps_event(groups, 5, start), "steps");
  EXPECT_EQ(data["dropped"], 5);
  const nlohmann::json& step = data["steps"][0];
  EXPECT_EQ(step["steps"], 1);
  EXPECT_DOUBLE_EQ(step["at_s"], 1);
  EXPECT_DOUBLE_EQ(step["until_s"], 1.25);
  EXPECT_DOUBLE_EQ(step["measured_s"], 0.25);
  for (const char* name : {"predicted_s", "roof_s", "flops", "bytes", "wall"}) {
    EXPECT_TRUE(step[name].is_null()) << name;
  }
  EXPECT_EQ(step["rows"], nlohmann::json::parse(R"([[3,"prefill",16],[4,"draft",3,2,4]])"));
  report.predicted_s = report.roof_s = 0.125;
  report.flops = 2e9;
  report.wall = Wall::compute;
  groups = {StepGroup(report)};
  const nlohmann::json known = data_of(steps_event(groups, 0, start), "steps")["steps"][0];
  EXPECT_EQ(known["wall"], "compute");
  EXPECT_DOUBLE_EQ(known["flops"], 2e9);
}

// A client applies the changes to its own grid.
void apply_changes(std::vector<CacheSnapshot::Page>& grid, const nlohmann::json& changes) {
  for (const nlohmann::json& run : changes) {
    for (size_t i = 0; i < run[1].get<size_t>(); ++i) {
      grid.at(run[0].get<size_t>() + i) = {run[2].get<int64_t>(), run[3].get<int>()};
    }
  }
}

TEST(LivePages, ComeToTheSameGrid) {
  SplitMix64 random(11);
  CacheSnapshot now;
  now.pages.resize(500);
  std::vector<CacheSnapshot::Page> known = now.pages, first = now.pages, late(500);
  size_t next = 0;
  for (int round = 0; round < 200; ++round) {
    for (uint64_t i = 0; i < random.next() % 3; ++i) {  // stretches of pages change
      const size_t begin = random.next() % 500,
                   end = std::min<size_t>(500, begin + random.next() % 90);
      for (size_t p = begin; p < end; ++p)
        now.pages[p] = {int64_t(random.next() % 4) - 1, int(random.next() % 2)};
    }
    const std::string event = pages_event(known, now, next, 200);
    EXPECT_LT(event.size(), 400u);
    if (!event.empty()) {
      const nlohmann::json data = data_of(event, "pages");
      EXPECT_EQ(data["full"], false);
      apply_changes(first, data["changes"]);
      int behind = 0;
      for (size_t p = 0; p < 500; ++p) behind += first[p] != now.pages[p];
      EXPECT_EQ(data["left_out"], behind);
      if (round > 100) apply_changes(late, data["changes"]);
    }
    EXPECT_EQ(first, known);
    if (round == 100) {  // another client joins
      const nlohmann::json data = data_of(all_pages_event(known, now), "pages");
      EXPECT_EQ(data["full"], true);
      apply_changes(late, data["changes"]);
    }
  }
  for (int i = 0; i < 100; ++i) {
    const std::string event = pages_event(known, now, next, 200);
    if (event.empty()) break;
    apply_changes(first, data_of(event, "pages")["changes"]);
    apply_changes(late, data_of(event, "pages")["changes"]);
  }
  EXPECT_EQ(first, now.pages);
  EXPECT_EQ(late, now.pages);
  EXPECT_EQ(pages_event(known, now, next, 200), "");
}

CacheSnapshot::Node node(int parent, int locks = 0) { return {parent, locks, true}; }

TEST(LiveTree, IsCompressedToRuns) {
  //  0 root - 1 - 2 - 3 - 4      5, 6 branch off 3; 7 is empty; 8 is another root
  std::vector<CacheSnapshot::Node> nodes{{},      node(0, 2), node(1, 2), node(2, 2), node(3),
                                         node(3), node(5),    {},         {},         node(8)};
  const nlohmann::json data = data_of(tree_event(nodes, 16), "tree");
  const auto expected = nlohmann::json::parse(R"([
      {"id":2,"parent":0,"pages":3,"tokens":48,"locked":2},
      {"id":10,"parent":0,"pages":1,"tokens":16,"locked":0},
      {"id":5,"parent":2,"pages":1,"tokens":16,"locked":0},
      {"id":6,"parent":2,"pages":2,"tokens":32,"locked":0}])");
  EXPECT_EQ(data["nodes"], expected);
  EXPECT_EQ(data["left_out"], 0);
  EXPECT_EQ(data_of(tree_event({}, 16), "tree")["nodes"], nlohmann::json::array());
  nodes.assign(1, {});
  for (int i = 0; i < 500; ++i) nodes.push_back(node(0));
  const nlohmann::json many = data_of(tree_event(nodes, 16), "tree");
  EXPECT_EQ(many["nodes"].size(), kMaxTreeNodes);
  EXPECT_EQ(many["left_out"], 300);
}

TEST(LiveRequests, NameTheirStage) {
  const ServingClock::time_point start = ServingClock::now();
  using Stage = RequestEvent::Stage;
  const std::vector<RequestEvent> events{
      {.id = 1, .stage = Stage::arrived, .at = start, .prompt_tokens = 9},
      {.id = 1, .stage = Stage::admitted, .at = start, .prompt_tokens = 9, .cached_tokens = 4},
      {.id = 1,
       .stage = Stage::ended,
       .at = start,
       .prompt_tokens = 9,
       .generated_tokens = 7,
       .end = EndReason::stop_string},
      {.id = 2, .stage = Stage::ended, .at = start, .end = EndReason::cancelled}};
  const nlohmann::json data = data_of(requests_event(events, 0, start), "requests");
  const auto expected = nlohmann::json::parse(R"([
      {"id":1,"at_s":0.0,"event":"arrived","prompt_tokens":9},
      {"id":1,"at_s":0.0,"event":"admitted","prompt_tokens":9,"cached_tokens":4},
      {"id":1,"at_s":0.0,"event":"finished","prompt_tokens":9,"cached_tokens":0,"generated_tokens":7,"end":"stop"},
      {"id":2,"at_s":0.0,"event":"cancelled","prompt_tokens":0,"cached_tokens":0,"generated_tokens":0,"end":"cancelled"}])");
  EXPECT_EQ(data["requests"], expected);
}

}  // namespace
}  // namespace ridge
