#include "hub/pull.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <mutex>
#include <optional>
#include <thread>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "base/units.h"
#include "hub/download.h"
#include "hub/hub_cache.h"
#include "hub/hub_request.h"

namespace ridge {
namespace {

namespace fs = std::filesystem;

bool user_cancelled(const PullOptions& options) {
  return options.cancelled != nullptr && options.cancelled->load();
}

void check_names(const PullOptions& options) {
  const std::optional<HubName> name = parse_hub_name(options.repo);
  if (!name || name->repo != options.repo) {
    throw Error("\"{}\": a repository is ORG/NAME, such as Qwen/Qwen3-0.6B",
                options.repo.substr(0, 80));
  }
  if (!is_safe_relative_path(options.revision)) {
    throw Error("\"{}\": a revision is a branch, a tag or a commit",
                options.revision.substr(0, 80));
  }
}

// Spaces and line ends around it are those of a file; others would end the HTTP header.
std::string checked_token(std::string token, const std::string& where) {
  const auto space = [](unsigned char c) { return c <= ' '; };
  while (!token.empty() && space(token.back())) token.pop_back();
  token.erase(token.begin(), std::ranges::find_if_not(token, space));
  const auto odd = [](unsigned char c) { return c <= ' ' || c >= 0x7F; };
  if (std::ranges::any_of(token, odd))
    throw Error("{}: a token has only printable characters", where);
  return token;
}

std::string find_token() {
  if (const char* token = std::getenv("HF_TOKEN")) return checked_token(token, "HF_TOKEN");
  const char* named = std::getenv("HF_TOKEN_PATH");
  const fs::path file = named != nullptr ? fs::path(named) : hub_home() / "token";
  std::error_code error;
  constexpr size_t kMaxToken = 4096;
  if (!fs::is_regular_file(file, error)) return "";
  return checked_token(read_file(file.string(), kMaxToken), file.string());
}

// Empty where it was cancelled.
std::string fetch_listing(CurlClient& client, const PullOptions& options) {
  HubRequest request;
  request.get.url = fmt::format("{}/api/models/{}/revision/{}?blobs=true", options.endpoint,
                                options.repo, percent_encode(options.revision));
  request.get.token = options.token;
  request.get.slowest_bytes_per_s = options.slowest_bytes_per_s;
  request.get.stall_s = options.stall_s;
  request.get.cancelled = [&] { return user_cancelled(options); };
  request.backoff_s = options.backoff_s;
  std::string body;
  request.from = [&] {  // each attempt starts over
    body.clear();
    return uint64_t{0};
  };
  const CurlReply reply =
      get_with_retries(client, request, [&](const CurlReply&, std::string_view bytes) {
        body += bytes;
        if (body.size() > kMaxJsonBytes) throw Error("{}: the listing is too long", options.repo);
        return true;
      });
  if (reply.failure == HttpFailure::cancelled) return "";
  const std::string what = options.revision == "main"
                               ? options.repo
                               : fmt::format("{}@{}", options.repo, options.revision);
  if (reply.failure != HttpFailure::none || reply.status != 200) {
    throw Error(failure_line(reply, request.get, options.repo, what));
  }
  return body;
}

// Bytes still to download: whole blobs and the incomplete ones of earlier pulls count.
uint64_t missing_bytes(const std::vector<HubFile>& files, const fs::path& blobs) {
  uint64_t missing = 0;
  for (const HubFile& file : files) {
    std::error_code none, partial;
    const uintmax_t whole = fs::file_size(blobs / file.hash, none);
    const uintmax_t begun = fs::file_size(blobs / (file.hash + ".incomplete"), partial);
    if (!none && whole == file.size) continue;
    missing += file.size - std::min<uint64_t>(file.size, partial ? 0 : begun);
  }
  return missing;
}

void check_space(const fs::path& folder, uint64_t wanted, const std::string& repo) {
  std::error_code error;
  const fs::space_info space = fs::space(folder, error);
  if (error || space.available >= wanted) return;
  throw Error("{}: {} are to be downloaded, {} are free in {}", repo, pretty_bytes(double(wanted)),
              pretty_bytes(double(space.available)), folder.string());
}

// A relative link, so that the cache can be moved.
void link_file(const fs::path& snapshot, const HubFile& file, const fs::path& blobs) {
  const fs::path link = snapshot / file.name;
  fs::create_directories(link.parent_path());
  const fs::path target = (blobs / file.hash).lexically_relative(link.parent_path());
  std::error_code error;
  if (fs::read_symlink(link, error) == target && !error) return;
  fs::remove(link, error);
  fs::create_symlink(target, link, error);
  // Another pull may have made the same link in between.
  if (error && fs::read_symlink(link) != target) {
    throw Error("{}: {}", link.string(), error.message());
  }
}

// Downloads the files on several threads, largest first; the caller's thread reports progress.
class ParallelDownload {
 public:
  ParallelDownload(const PullOptions& options, DownloadSource source, std::vector<HubFile> files)
      : options_(options), source_(std::move(source)), files_(std::move(files)) {
    std::ranges::sort(files_, {}, [](const HubFile& file) { return ~file.size; });
    source_.cancelled = [this] { return stopped_ || user_cancelled(options_); };
    source_.done_bytes = &done_;
  }

  // False: cancelled. Throws the first error of any thread.
  bool run(uint64_t total, uint64_t& downloaded) {
    std::vector<std::jthread> threads;
    const int count = std::clamp(options_.connections, 1, int(files_.size()));
    running_ = count;
    for (int i = 0; i < count; ++i) threads.emplace_back([this] { work(); });
    std::unique_lock lock(mutex_);
    while (
        !finished_.wait_for(lock, std::chrono::milliseconds(200), [&] { return running_ == 0; })) {
      if (!options_.progress) continue;
      lock.unlock();
      options_.progress({static_cast<uint64_t>(std::max<int64_t>(0, done_)), total});
      lock.lock();
    }
    downloaded = downloaded_;
    if (error_) std::rethrow_exception(error_);
    return !user_cancelled(options_);
  }

 private:
  void work() {
    uint64_t received = 0;
    std::exception_ptr error;
    try {
      CurlClient client;
      for (size_t i = next_++; i < files_.size() && !source_.cancelled(); i = next_++) {
        received += download_file(client, files_[i], source_).bytes;
      }
    } catch (...) {
      error = std::current_exception();
      stopped_ = true;
    }
    const std::lock_guard lock(mutex_);
    downloaded_ += received;
    if (!error_) error_ = error;
    if (--running_ == 0) finished_.notify_all();
  }

  const PullOptions& options_;
  DownloadSource source_;
  std::vector<HubFile> files_;
  std::atomic<size_t> next_ = 0;
  std::atomic<int64_t> done_ = 0;
  std::atomic<bool> stopped_ = false;  // another thread failed
  std::mutex mutex_;
  std::condition_variable finished_;
  int running_ = 0;  // under mutex_, like the following
  uint64_t downloaded_ = 0;
  std::exception_ptr error_;
};

// Two names of one content are one download.
std::vector<HubFile> distinct_blobs(std::vector<HubFile> files) {
  std::ranges::sort(files, {}, &HubFile::hash);
  const auto same = [](const HubFile& a, const HubFile& b) { return a.hash == b.hash; };
  files.erase(std::unique(files.begin(), files.end(), same), files.end());
  return files;
}

}  // namespace

PullOptions pull_options_from_environment() {
  PullOptions options;
  const char* endpoint = std::getenv("HF_ENDPOINT");
  options.endpoint = endpoint != nullptr && *endpoint ? endpoint : "https://huggingface.co";
  while (options.endpoint.ends_with('/')) options.endpoint.pop_back();
  if (!options.endpoint.starts_with("https://") && !options.endpoint.starts_with("http://")) {
    throw Error("HF_ENDPOINT {}: an address that starts with https://", options.endpoint);
  }
  options.token = find_token();
  options.cache = hub_cache_folder();
  return options;
}

Pulled pull(const PullOptions& options) {
  check_names(options);
  Pulled result;
  CurlClient client;
  const std::string body = fetch_listing(client, options);
  if (body.empty()) {
    result.cancelled = true;
    return result;
  }
  const HubListing listing = parse_listing(body, options.repo);
  result.commit = listing.commit;
  result.files = files_to_pull(listing, options.repo, options.files);
  const std::vector<HubFile> blobs = distinct_blobs(result.files);
  for (const HubFile& file : blobs) result.bytes += file.size;

  const fs::path folder = hub_repo_folder(options.cache, options.repo);
  const fs::path snapshot = folder / "snapshots" / listing.commit;
  result.path = result.files.size() == 1 ? snapshot / result.files.front().name : snapshot;
  DownloadSource source;
  source.blobs = folder / "blobs";
  source.locks = options.cache / ".locks" / folder.filename();
  result.missing = missing_bytes(blobs, source.blobs);
  if (options.dry_run) return result;

  fs::create_directories(source.blobs);
  fs::create_directories(source.locks);
  check_space(source.blobs, result.missing, options.repo);
  source.endpoint = options.endpoint;
  source.repo = options.repo;
  source.commit = listing.commit;
  source.token = options.token;
  source.backoff_s = options.backoff_s;
  source.slowest_bytes_per_s = options.slowest_bytes_per_s;
  source.stall_s = options.stall_s;
  ParallelDownload download(options, source, blobs);
  if (!download.run(result.bytes, result.downloaded)) {
    result.cancelled = true;
    return result;
  }
  for (const HubFile& file : result.files) link_file(snapshot, file, source.blobs);
  if (options.revision != listing.commit) {
    const fs::path ref = folder / "refs" / options.revision;
    fs::create_directories(ref.parent_path());
    write_file(ref.string(), listing.commit);
  }
  return result;
}

}  // namespace ridge
