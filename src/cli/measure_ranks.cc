#include "cli/measure_ranks.h"

#include <fmt/format.h>

#include <cstdio>
#include <optional>
#include <set>

#include "base/file.h"
#include "base/json.h"
#include "base/text.h"
#include "base/units.h"
#include "cli/measure_view.h"
#include "cli/progress_line.h"
#include "engine/cuda/ranks/measure_sums.h"
#include "measure/ranks/measure_ranks.h"

namespace ridge {
namespace {

std::string error_text(double predicted, double measured) {
  return fmt::format("{:+.0f} %", 100 * (predicted / measured - 1));
}

void print_ranks(const RanksReport& found) {
  const std::string where = found.hosts > 1 ? fmt::format(" on {} hosts", found.hosts) : "";
  fmt::print("{} ranks{}, {}: latency {}, bandwidth {}\n\n", found.ranks, where,
             link_name(found.method), pretty_time(found.link.latency),
             pretty_rate(1 / found.link.per_byte));
  Table table({"collective", "message", "time", "p10-p90", "message/s", "predicted", "error"});
  Collective kind = Collective::none;
  for (const CollectiveTime& time : found.times) {
    if (kind != Collective::none && kind != time.kind) table.rule();
    kind = time.kind;
    const double predicted = found.predicted_s(time);
    table.add({std::string(collective_name(kind)), time.bytes > 0 ? pretty_binary(time.bytes) : "-",
               pretty_time(time.seconds),
               fmt::format("{:.0f} %", 100 * (time.high - time.low) / time.seconds),
               time.bytes > 0 ? pretty_rate(time.bytes / time.seconds) : "", pretty_time(predicted),
               error_text(predicted, time.seconds) +
                   (time.doubt.empty() ? "" : paint(Colour::yellow, " ?"))});
  }
  fmt::print("{}", table.text());
  const bool by_points = !found.link.exchanges.empty() && !found.link.messages.empty();
  fmt::print("Predicted from the all-gathers {}: median error {}{}.\n",
             by_points ? "and sends" : "of the smallest size and of 1 MiB",
             by_points ? "of the others " : "", pretty_percent(found.median_error()));
  std::set<std::string> doubts;
  for (const CollectiveTime& time : found.times) {
    if (!time.doubt.empty()) doubts.insert(time.doubt);
  }
  for (const std::string& doubt : doubts) fmt::print("? {}\n", doubt);
  for (const std::string& line : found.report.conditions) fmt::print("{}\n", line);
}

void print_gpu_sums(const GpuSumsReport& found) {
  const std::string own = fmt::format("{} GPUs", found.devices);
  fmt::print("{} ranks on {} ({}): sums in device memory\n\n", found.ranks,
             found.devices == 1 ? "one GPU" : own, found.device);
  Table table({"backend", "message", "time", "p10-p90", "message/s", "predicted", "error"});
  std::string backend;
  for (const GpuSumTime& sum : found.times) {
    if (!backend.empty() && backend != sum.backend) table.rule();
    backend = sum.backend;
    const CollectiveTime& time = sum.time;
    const std::optional<double> predicted = found.predicted_s(sum);
    table.add({backend, pretty_binary(time.bytes), pretty_time(time.seconds),
               fmt::format("{:.0f} %", 100 * (time.high - time.low) / time.seconds),
               pretty_rate(time.bytes / time.seconds), predicted ? pretty_time(*predicted) : "",
               (predicted ? error_text(*predicted, time.seconds) : "") +
                   (time.doubt.empty() ? "" : paint(Colour::yellow, " ?"))});
  }
  fmt::print("{}", table.text());
  for (const std::string& line : found.missing) fmt::print("not measured: {}\n", line);
}

}  // namespace

void run_measure_gpu_ranks(int ranks, Effort effort, const std::string& out, bool json) {
  if (!out.empty()) check_writable(out);
  std::optional<ProgressLine> line;  // of rank 0
  const GpuSumsReport found = measure_gpu_sums(ranks, effort, [&](const std::string& step) {
    if (!line) line.emplace(fmt::format("{} GPU ranks", ranks));
    (*line)(step);
  });
  line.reset();
  const nlohmann::json file = gpu_sums_to_json(found, measured_today(), effort);
  if (json) {
    fmt::print("{}\n", file.dump(2));
  } else {
    print_gpu_sums(found);
  }
  std::fflush(stdout);  // before what goes to stderr
  const bool has_link = !file.value("links", nlohmann::json::array()).empty();
  if (out.empty() && !has_link) {
    fmt::print(stderr, "Not stored: {}; -o FILE stores the times\n",
               found.ranks_share_a_device()
                   ? fmt::format("{} ranks share {} GPU{} and take turns there, which is no link",
                                 found.ranks, found.devices, found.devices == 1 ? "" : "s")
                   : "there are no direct sums, or the atlas does not know this GPU");
    return;
  }
  const std::string path =
      out.empty() ? measured_file(file["name"].get<std::string>() + "-ranks") : out;
  write_file(path, file.dump(2) + "\n");
  fmt::print(stderr, "Wrote {}\n", path);
}

void run_measure_ranks(int ranks, Effort effort, const std::string& out, bool json) {
  if (!out.empty()) check_writable(out);
  std::optional<ProgressLine> line;  // of rank 0
  const RanksReport found = measure_ranks(ranks, effort, [&](const std::string& step) {
    if (!line) line.emplace(fmt::format("{} ranks", ranks));
    (*line)(step);
  });
  line.reset();
  const std::string file_name =
      fmt::format("this-{}", found.method == LinkMethod::mpi ? "mpi" : "ranks");
  const nlohmann::json file = ranks_to_json(found, measured_today(), effort);
  if (json) {
    fmt::print("{}\n", file.dump(2));
  } else {
    print_ranks(found);
  }
  std::fflush(stdout);  // before what goes to stderr
  if (out.empty() && found.hosts == 1 && found.ranks > found.cores) {
    fmt::print(
        stderr,
        "Not stored: {} ranks on {} core{} take turns, which is no link; -o FILE stores it\n",
        found.ranks, found.cores, found.cores == 1 ? "" : "s");
    return;
  }
  const std::string path = out.empty() ? measured_file(file_name) : out;
  write_file(path, file.dump(2) + "\n");
  fmt::print(stderr, "Wrote {}\n", path);
}

}  // namespace ridge
