// What libFuzzer is told where the command line names no file: how long a target runs
// (RIDGE_FUZZ_SECONDS, 5 by default), the seed of its random numbers (RIDGE_FUZZ_SEED, 1 by
// default, so that a run of CI judges the change and not its luck; 0 draws a seed, as tools/nightly
// does), and a corpus, a folder that is filled with the target's seeds.
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
  for (const std::string& bytes : fuzz_seeds()) {
    std::ofstream(folder + "/" + std::to_string(number++), std::ios::binary) << bytes;
  }
  const auto option = [](const char* name, const char* variable, const char* otherwise) {
    const char* const given = std::getenv(variable);
    return std::string(name) + (given == nullptr ? otherwise : given);
  };
  static std::string limit = option("-max_total_time=", "RIDGE_FUZZ_SECONDS", "5");
  static std::string seed = option("-seed=", "RIDGE_FUZZ_SEED", "1");
  static std::vector<char*> extended(*words, *words + 1);
  extended.push_back(limit.data());
  extended.push_back(seed.data());
  extended.insert(extended.end(), *words + 1, *words + *count);
  extended.push_back(folder.data());
  *count = int(extended.size());
  extended.push_back(nullptr);
  *words = extended.data();
  return 0;
}
