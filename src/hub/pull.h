// Downloads a model from the Hub into the local cache (hub/hub_cache.h).
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "hub/repository.h"

namespace ridge {

struct PullProgress {
  uint64_t done = 0, total = 0;  // bytes; done counts what was in the cache
};

struct PullOptions {
  std::string repo;
  std::string revision = "main";
  std::vector<std::string> files;  // see files_to_pull
  std::string endpoint;            // "https://huggingface.co"; HF_ENDPOINT
  std::string token;               // empty: none
  std::filesystem::path cache;
  bool dry_run = false;  // lists and downloads nothing
  int connections = 4;
  double backoff_s = 1, slowest_bytes_per_s = 1024, stall_s = 30;  // see HubRequest
  const std::atomic<bool>* cancelled = nullptr;
  std::function<void(const PullProgress&)> progress;  // a few times a second
};

struct Pulled {
  std::string commit;
  std::vector<HubFile> files;
  std::filesystem::path path;  // the snapshot's folder; of a single file the file
  uint64_t bytes = 0;          // of all files, equal ones once
  uint64_t downloaded = 0;     // bytes over the network in this call
  uint64_t missing = 0;        // bytes not in the cache before, without what an earlier pull left
  bool cancelled = false;      // the same call goes on where this one stopped
};

// HF_ENDPOINT, HF_TOKEN (or the token file of `hf auth login`) and the cache's folder.
PullOptions pull_options_from_environment();

// The files arrive in blobs/, are linked in snapshots/, and refs/REVISION is written last: a pull
// that was interrupted changes nothing for who reads the cache. Throws Error.
Pulled pull(const PullOptions& options);

}  // namespace ridge
