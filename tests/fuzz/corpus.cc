// What libFuzzer is told where the command line names no file: how long a target runs
// (RIDGE_FUZZ_SECONDS, 5 by default), and a corpus, a folder that is filled with the target's
// seeds.
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "replay.h"

extern "C" int LLVMFuzzerInitialize(int* count, char*** words) {
  for (int i = 1; i < *count; ++i) {
    if ((*words)[i][0] != '-') return 0;  // an input that crashed, or another corpus
  }
  static std::string folder = std::filesystem::temp_directory_path() / "ridge-fuzz-XXXXXX";
  if (mkdtemp(folder.data()) == nullptr) std::abort();
  std::atexit([] {
    std::error_code ignored;
    std::filesystem::remove_all(folder, ignored);
  });
  int number = 0;
  for (const std::string& seed : fuzz_seeds()) {
    std::ofstream(folder + "/" + std::to_string(number++), std::ios::binary) << seed;
  }
  const char* const seconds = std::getenv("RIDGE_FUZZ_SECONDS");
  static std::string limit = std::string("-max_total_time=") + (seconds == nullptr ? "5" : seconds);
  static std::vector<char*> extended(*words, *words + 1);
  extended.push_back(limit.data());
  extended.insert(extended.end(), *words + 1, *words + *count);
  extended.push_back(folder.data());
  *count = int(extended.size());
  extended.push_back(nullptr);
  *words = extended.data();
  return 0;
}
