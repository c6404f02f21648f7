#include "live/live_steps.h"

#include <algorithm>
#include <utility>

namespace ridge {
namespace {

bool same_row(const StepRow& a, const StepRow& b) { return a.id == b.id && a.kind == b.kind; }

void add_row(std::vector<StepRow>& rows, const StepRow& row, size_t likely) {
  // Neighbouring steps mostly have the same sequences in the same order.
  const bool there = likely < rows.size() && same_row(rows[likely], row);
  const auto found = there ? rows.begin() + long(likely)
                           : std::find_if(rows.begin(), rows.end(),
                                          [&](const StepRow& r) { return same_row(r, row); });
  if (found == rows.end()) {
    rows.push_back(row);
    return;
  }
  found->tokens += row.tokens;
  found->accepted += row.accepted;
  found->drafts += row.drafts;
}

bool same_kind(const StepGroup& a, const StepGroup& b) {
  return a.prefills() == b.prefills() && a.decodes() == b.decodes();
}

}  // namespace

StepGroup::StepGroup(const StepReport& report)
    : steps(report.measured_s > 0 ? 1 : 0),
      sum(report),
      rows(report.rows.begin(), report.rows.end()) {
  sum.rows = {};
  wall_s[size_t(report.wall)] = report.measured_s;
}

void StepGroup::merge(const StepGroup& later) {
  if (steps == 0) sum.began = later.sum.began;
  if (later.steps > 0) sum.ended = later.sum.ended;
  steps += later.steps;
  const StepReport& l = later.sum;
  for (double StepReport::*m :
       {&StepReport::measured_s, &StepReport::predicted_s, &StepReport::roof_s,
        &StepReport::host_gap_s, &StepReport::flops, &StepReport::bytes}) {
    sum.*m += l.*m;
  }
  for (int StepReport::*m :
       {&StepReport::prefill_tokens, &StepReport::prefill_sequences, &StepReport::decode_sequences,
        &StepReport::drafted_sequences, &StepReport::draft_tokens, &StepReport::accepted_tokens,
        &StepReport::generated_tokens, &StepReport::preempted}) {
    sum.*m += l.*m;
  }
  for (int StepReport::*m : {&StepReport::running, &StepReport::waiting, &StepReport::pages_free,
                             &StepReport::pages_cached, &StepReport::pages_held}) {
    sum.*m = l.*m;
  }
  for (size_t w = 0; w < wall_s.size(); ++w) wall_s[w] += later.wall_s[w];
  for (size_t i = 0; i < later.rows.size(); ++i) add_row(rows, later.rows[i], i);
}

Wall StepGroup::wall() const {
  return Wall(std::max_element(wall_s.begin(), wall_s.end()) - wall_s.begin());
}

void merge_groups(std::vector<StepGroup>& groups, size_t most) {
  if (groups.size() <= most) return;
  int total = 0;
  for (const StepGroup& group : groups) total += group.steps;
  const int each = (total + int(most) - 1) / int(most);
  std::vector<StepGroup> merged;
  for (StepGroup& group : groups) {
    const bool fits = !merged.empty() && same_kind(merged.back(), group) &&
                      merged.back().steps + group.steps <= each;
    if (fits) {
      merged.back().merge(group);
    } else {
      merged.push_back(std::move(group));
    }
  }
  groups.clear();
  const size_t count = merged.size();
  for (size_t i = 0; i < count; ++i) {
    const size_t place = count <= most ? i : i * most / count;
    if (place < groups.size()) {
      groups[place].merge(merged[i]);
    } else {
      groups.push_back(std::move(merged[i]));
    }
  }
}

}  // namespace ridge
