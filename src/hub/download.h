// One file of a repository into the cache's blobs/: resumed, checked, and renamed when it is whole.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>

#include "hub/http_get.h"
#include "hub/repository.h"

namespace ridge {

// What the downloads of one pull have in common.
struct DownloadSource {
  std::string endpoint;  // "https://huggingface.co"
  std::string repo, commit;
  std::string token;  // empty: none
  std::filesystem::path blobs, locks;
  double backoff_s = 1, slowest_bytes_per_s = 1024, stall_s = 30;  // see HubRequest
  std::function<bool()> cancelled;
  std::atomic<int64_t>* done_bytes = nullptr;  // grows as bytes arrive; falls where a file restarts
};

struct Downloaded {
  bool complete = false;  // false: cancelled; what arrived is kept for the next attempt
  uint64_t bytes = 0;     // received over the network
};

// Afterwards blobs/HASH is there, or HASH.incomplete with what arrived. A lock where
// huggingface_hub takes its own keeps two downloads of one blob apart: the second waits. Throws
// Error where the server refuses, keeps failing, or sends another size or content.
Downloaded download_file(CurlClient& client, const HubFile& file, const DownloadSource& source);

}  // namespace ridge
