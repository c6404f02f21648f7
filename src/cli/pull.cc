// `ridge pull`: a model from Hugging Face into the local cache.
#include "hub/pull.h"

#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>

#include "base/error.h"
#include "base/json.h"
#include "base/text.h"
#include "base/units.h"
#include "cli/command.h"
#include "cli/interrupt.h"
#include "hub/hub_cache.h"

namespace ridge {
namespace {

struct PullCommandOptions {
  std::string repo, revision;
  std::vector<std::string> files;
  bool dry_run = false;
};

constexpr const char* kPullFooter = R"(Examples:
  ridge pull Qwen/Qwen3-0.6B                           then: ridge run Qwen/Qwen3-0.6B "Hello"
  ridge pull Qwen/Qwen3-0.6B --dry-run                 the files and their sizes
  ridge pull org/model-GGUF model-Q4_K_M.gguf          then: ridge run org/model-GGUF "Hello"
  ridge pull org/model-GGUF '*Q4_K_M*'                 shell patterns name files, too
  ridge pull org/name --revision v1.1                  then: ridge run org/name@v1.1 "Hello"

Without FILE it takes what a run needs: config, tokenizer, chat template and safetensors, or the only
GGUF. The cache is the one that Python's huggingface_hub keeps: HF_HUB_CACHE, else HF_HOME/hub, else
~/.cache/huggingface/hub. HF_ENDPOINT names another server. HF_TOKEN, or the file that `hf auth login`
writes, opens gated repositories; no other host gets it. Sizes and hashes are checked. After Ctrl-C
(exit code 130) or a broken connection the same command goes on where it stopped.

JSON: {repo, revision, commit, path, bytes, missing_bytes, downloaded_bytes, seconds, files: [{name,
size, hash}]}.)";

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// "1.2 GB of 16 GB, 85 MB/s, 2 m 3 s left", rewritten in place.
class DownloadLine {
 public:
  void show(const PullProgress& progress) {
    const double seconds = seconds_since(start_);
    if (!begun_) {  // what the cache held is not part of the rate
      begun_ = true;
      first_ = progress.done;
      start_ = std::chrono::steady_clock::now();
      return;
    }
    if (seconds <= 0 || progress.done < first_) return;
    const double rate = double(progress.done - first_) / seconds;
    std::string left;
    if (rate > 0)
      left = fmt::format(", {} left", pretty_time(double(progress.total - progress.done) / rate));
    fmt::print(stderr, "\r{} of {}, {}{}\033[K", pretty_bytes(double(progress.done)),
               pretty_bytes(double(progress.total)), pretty_rate(rate), left);
    std::fflush(stderr);
    shown_ = true;
  }
  void clear() const {
    if (shown_) fmt::print(stderr, "\r\033[K");
  }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  uint64_t first_ = 0;
  bool begun_ = false, shown_ = false;
};

PullOptions options_of(const PullCommandOptions& command) {
  PullOptions options = pull_options_from_environment();
  options.repo = command.repo;
  options.files = command.files;
  options.dry_run = command.dry_run;
  if (const std::optional<HubName> name = parse_hub_name(command.repo)) {
    options.repo = name->repo;
    options.revision = name->revision;
    if (!name->file.empty()) options.files.push_back(name->file);
  }
  if (!command.revision.empty()) options.revision = command.revision;
  return options;
}

Json pulled_json(const PullOptions& options, const Pulled& pulled, double seconds) {
  Json files = Json::array();
  for (const HubFile& file : pulled.files) {
    files.push_back({{"name", file.name}, {"size", file.size}, {"hash", file.hash}});
  }
  return {{"repo", options.repo},
          {"revision", options.revision},
          {"commit", pulled.commit},
          {"path", pulled.path.string()},
          {"bytes", pulled.bytes},
          {"missing_bytes", pulled.missing},
          {"downloaded_bytes", pulled.downloaded},
          {"seconds", seconds},
          {"files", std::move(files)}};
}

void print_pulled(const PullOptions& options, const Pulled& pulled, double seconds) {
  if (options.dry_run) {
    Table table({"file", "size"});
    for (const HubFile& file : pulled.files)
      table.add({file.name, pretty_bytes(double(file.size))});
    fmt::print("{}{} in all, {} to download\n", table.text(), pretty_bytes(double(pulled.bytes)),
               pretty_bytes(double(pulled.missing)));
    return;
  }
  const std::string fetched =
      pulled.downloaded == 0
          ? "all in the cache"
          : fmt::format("{} downloaded in {}", pretty_bytes(double(pulled.downloaded)),
                        pretty_time(seconds));
  fmt::print("{}: {} files, {}, {}\n{}\n", paint(Colour::bold, options.repo), pulled.files.size(),
             pretty_bytes(double(pulled.bytes)), fetched, pulled.path.string());
}

void run_pull(const PullCommandOptions& command, Global& global) {
  PullOptions options = options_of(command);
  DownloadLine line;
  if (!global.json && ::isatty(STDERR_FILENO) != 0) {
    options.progress = [&](const PullProgress& progress) { line.show(progress); };
  }
  const auto start = std::chrono::steady_clock::now();
  const InterruptScope interrupt;
  options.cancelled = &interrupt.flag();
  const Pulled pulled = [&] {
    try {
      return pull(options);
    } catch (...) {
      line.clear();
      throw;
    }
  }();
  line.clear();
  if (pulled.cancelled) {
    fmt::print(stderr, "ridge: interrupted; the same command resumes the download\n");
    global.exit_code = kInterruptedExitCode;
    return;
  }
  const double seconds = seconds_since(start);
  if (global.json) {
    fmt::print(
        "{}\n",
        pulled_json(options, pulled, seconds).dump(2, ' ', false, Json::error_handler_t::replace));
  } else {
    print_pulled(options, pulled, seconds);
  }
}

}  // namespace

void add_pull_command(CLI::App& app, Global& global) {
  auto options = std::make_shared<PullCommandOptions>();
  CLI::App* command = app.add_subcommand("pull", "Download a model from Hugging Face");
  command->footer(kPullFooter);
  command->add_option("repo", options->repo, "ORG/NAME")->required();
  command->add_option("file", options->files, "Files or patterns; none: what a run needs");
  command->add_option("--revision", options->revision, "Branch, tag or commit (default: main)");
  command->add_flag("--dry-run", options->dry_run, "List the files and sizes; download nothing");
  command->callback([options, &global] { run_pull(*options, global); });
}

}  // namespace ridge
