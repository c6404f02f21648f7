#include "validate/endpoint_score.h"

#include <tuple>

#include "base/error.h"
#include "validate/endpoints.h"
#include "validate/rows.h"

namespace ridge {
namespace {

constexpr double kFewClients = 4;

// The 80 % band of held-out endpoints (docs/accuracy.md).
constexpr Band kTokenBand{0.82, 1.25}, kFirstBand{0.65, 1.5};

using Key = std::tuple<std::string, std::string, std::string, std::string, bool>;

void score(const Endpoint& e, std::map<Key, Rows>& groups) {
  const EndpointEstimate expected =
      estimate_endpoint(endpoint_parts(e.request, e.load), e.request.stack, e.load);
  Request ideal = e.request;
  ideal.stack = Stack{};
  const EndpointEstimate roof =
      estimate_endpoint(endpoint_parts(ideal, e.load), ideal.stack, e.load);
  const bool queued = e.ttft_s > e.load.output * e.tpot_s;
  const std::string first = e.load.clients <= kFewClients ? "e2e_ttft" : "e2e_ttft_loaded";
  groups[{"e2e_tpot", e.gpu, e.framework, e.dtype, queued}].add(e.tpot_s, expected.tpot_s,
                                                                roof.tpot_s, kTokenBand);
  groups[{first, e.gpu, e.framework, e.dtype, queued}].add(e.ttft_s, expected.ttft_s, roof.ttft_s,
                                                           kFirstBand);
}

}  // namespace

void score_endpoints(const std::string& folder, Scoreboard& board,
                     const std::function<void(const std::string&)>& complain) {
  std::map<Key, Rows> groups;
  size_t skipped = 0;
  for (const std::string& path : find_endpoint_files(folder)) {
    std::erase(board.ignored, path);
    try {
      for (const Endpoint& e : read_endpoints(path, skipped, complain)) score(e, groups);
    } catch (const Error& error) {
      complain(error.what());
    }
  }
  if (skipped > 0) {
    complain(fmt::format("{}: {} endpoints not scored: their columns do not fix the layout", folder,
                         skipped));
  }
  for (const auto& [key, rows] : groups) {
    ScoreGroup group;
    std::tie(group.op, group.gpu, group.framework, group.dtype, group.defective) = key;
    group.stats = stats_of(rows);
    group.strata.push_back({"all", group.stats});
    add_weighted((group.defective ? board.apart : board.totals)[group.op], group.stats);
    board.groups.push_back(std::move(group));
  }
}

}  // namespace ridge
