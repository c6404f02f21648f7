// ridge validate: the accuracy of the predictor against measured silicon.
#include <fmt/format.h>

#include <memory>
#include <thread>

#include "base/error.h"
#include "base/json.h"
#include "base/text.h"
#include "cli/command.h"
#include "roofline/kernel_fits.h"
#include "validate/endpoint_score.h"
#include "validate/score.h"

namespace ridge {

namespace {

constexpr const char* kValidateExamples = R"(Examples:
  ridge validate ../shared/silicon/calib             every kernel table below a folder
  ridge validate data --strata                       also by size
  ridge validate data --json | jq .totals

A folder holds <gpu>/<table>.<framework>.csv, plain or .gz, times in the column us (or latency, in
milliseconds). docs/accuracy.md explains the model and its scores.)";

struct ValidateOptions {
  std::string folder;
  bool csv = false, strata = false;
};

Json stats_json(const ScoreStats& s) {
  const auto rounded = [](double v) { return std::stod(fmt::format("{:.4g}", v)); };
  Json json;
  json["rows"] = s.rows;
  json["mape"] = rounded(s.mape);
  json["median"] = rounded(s.median);
  json["p90"] = rounded(s.p90);
  json["bias"] = rounded(s.bias);
  json["naive_mape"] = rounded(s.naive_mape);
  json["outside_physics"] = s.outside_physics;
  json["in_band"] = rounded(s.in_band);
  return json;
}

Json totals_json(const std::map<std::string, ScoreStats>& totals) {
  Json json = Json::object();
  for (const auto& [op, stats] : totals) json[op] = stats_json(stats);
  return json;
}

Json board_json(const Scoreboard& board) {
  Json groups = Json::array();
  for (const ScoreGroup& group : board.groups) {
    Json json;
    json["op"] = group.op;
    json["gpu"] = group.gpu;
    json["framework"] = group.framework;
    json["dtype"] = group.dtype;
    json.update(stats_json(group.stats));
    json["defective"] = group.defective;
    json["distance"] = std::stod(fmt::format("{:.2f}", group.distance));
    Json strata = Json::array();
    for (const ScoreStratum& stratum : group.strata) {
      Json part;
      part["stratum"] = stratum.name;
      part.update(stats_json(stratum.stats));
      strata.push_back(part);
    }
    json["strata"] = strata;
    groups.push_back(json);
  }
  Json json;
  json["groups"] = groups;
  json["totals"] = totals_json(board.totals);
  json["defective"] = totals_json(board.apart);
  return json;
}

std::vector<std::string> cells(const ScoreStats& s) {
  return {std::to_string(s.rows),
          fmt::format("{:.1f}", s.mape),
          fmt::format("{:.1f}", s.median),
          fmt::format("{:.1f}", s.p90),
          fmt::format("{:.2f}", s.bias),
          fmt::format("{:.0f}", 100 * s.in_band),
          std::to_string(s.outside_physics),
          fmt::format("{:.1f}", s.naive_mape)};
}

void add_row(Table& table, std::vector<std::string> left, const ScoreStats& stats) {
  for (std::string& cell : cells(stats)) left.push_back(std::move(cell));
  table.add(std::move(left));
}

Table group_table(const Scoreboard& board, bool strata) {
  Table table({"op", "gpu", "framework", "dtype", "stratum", "rows", "MAPE %", "median %", "p90 %",
               "bias", "in band %", "above roof", "naive MAPE %"});
  for (const ScoreGroup& group : board.groups) {
    const std::string op = group.defective ? group.op + " (defective)" : group.op;
    add_row(table, {op, group.gpu, group.framework, group.dtype, "all"}, group.stats);
    if (!strata) continue;
    for (const ScoreStratum& stratum : group.strata)
      add_row(table, {op, group.gpu, group.framework, group.dtype, stratum.name}, stratum.stats);
  }
  return table;
}

void print_board(const Scoreboard& board, bool strata) {
  fmt::print("{}\n", group_table(board, strata).text());
  Table totals({"total", "rows", "MAPE %", "median %", "p90 %", "bias", "in band %", "above roof",
                "naive MAPE %"});
  for (const auto& [op, stats] : board.totals) add_row(totals, {op}, stats);
  if (!board.apart.empty()) {
    totals.rule();
    for (const auto& [op, stats] : board.apart) add_row(totals, {op + " (defective)"}, stats);
  }
  fmt::print(
      "{}\nErrors are |predicted / measured - 1|; bias is the median of measured / predicted. "
      "Totals are row-weighted over groups. \"above roof\" counts rows measured faster than the "
      "roof. Rows that the data's notes call defective are listed separately.\n",
      totals.text());
}

}  // namespace

void add_validate_command(CLI::App& app, Global& global) {
  auto o = std::make_shared<ValidateOptions>();
  CLI::App* command =
      app.add_subcommand("validate", "Score the predictor against measured kernel times");
  command->add_option("folder", o->folder, "Folder of measured tables")->required();
  command->add_flag("--csv", o->csv, "Groups as comma-separated values");
  command->add_flag("--strata", o->strata, "Also a row per size class");
  command->footer(kValidateExamples);
  command->callback([o, &global] {
    const int threads = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
    const auto complain = [](const std::string& line) { fmt::print(stderr, "{}\n", line); };
    Scoreboard board = score_silicon(o->folder, builtin_fits(), threads, complain);
    score_endpoints(o->folder, board, complain);
    if (board.groups.empty())
      throw Error("{}: no kernel tables (<gpu>/<table>.<framework>.csv[.gz])", o->folder);
    if (!board.ignored.empty())
      fmt::print(stderr, "{}: {} files are not kernel tables and were not scored\n", o->folder,
                 board.ignored.size());
    if (global.json)
      fmt::print("{}\n", board_json(board).dump(2));
    else if (o->csv)
      fmt::print("{}", group_table(board, true).csv());
    else
      print_board(board, o->strata);
  });
}

}  // namespace ridge
