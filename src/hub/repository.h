// What a repository on the Hub holds, and which of its files a run needs.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace ridge {

struct HubFile {
  std::string name;  // path in the repository, checked by is_safe_relative_path
  uint64_t size = 0;
  std::string hash;  // name in blobs/: SHA-256 of an LFS file (64 digits), else git's SHA-1 (40)
};

struct HubListing {
  std::string commit;
  std::vector<HubFile> files;
};

// The reply to GET /api/models/REPO/revision/REVISION?blobs=true. Throws Error for anything that is
// not such a listing and for names that leave the folder.
HubListing parse_listing(std::string_view reply, const std::string& repo);

// Without `patterns` what a run needs: config, tokenizer and chat template with the safetensors
// that the loader would take, else the repository's only GGUF model. With them the files that match
// (file names or shell patterns; a piece of a GGUF brings the other pieces). Throws Error where
// nothing matches, or several GGUF models are there to choose from.
std::vector<HubFile> files_to_pull(const HubListing& listing, const std::string& repo,
                                   const std::vector<std::string>& patterns);

}  // namespace ridge
