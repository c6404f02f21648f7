// Runs every fuzz target without libFuzzer: its seeds, every truncation of short ones, and a fixed
// number of seeded mutations. The same inputs on every run; RIDGE_FUZZ_MUTATIONS sets how many.
#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

// fuzz_targets.inc has a line RIDGE_FUZZ_TARGET(NAME) for each fuzz_*.cc, which CMake compiles with
// names of its own.
#define RIDGE_FUZZ_TARGET(NAME)                                  \
  extern "C" int NAME##_input(const uint8_t* data, size_t size); \
  std::vector<std::string> NAME##_seeds();
#include "fuzz_targets.inc"
#undef RIDGE_FUZZ_TARGET

namespace {

struct Target {
  const char* name;
  int (*input)(const uint8_t* data, size_t size);
  std::vector<std::string> (*seeds)();
};

const Target kTargets[] = {
#define RIDGE_FUZZ_TARGET(NAME) {#NAME, NAME##_input, NAME##_seeds},
#include "fuzz_targets.inc"
#undef RIDGE_FUZZ_TARGET
};

int mutations() {
  const char* const given = std::getenv("RIDGE_FUZZ_MUTATIONS");
  return given == nullptr ? 2'000 : std::atoi(given);
}
constexpr size_t kTruncated = 2'000;  // seeds up to this long are cut at every byte

using Random = std::mt19937_64;

size_t pick(Random& random, size_t below) { return below == 0 ? 0 : random() % below; }

// Numbers where readers break: limits, signs, sizes that overflow when multiplied.
void replace_number(std::string& input, Random& random) {
  static const char* const kNumbers[] = {"0",
                                         "-1",
                                         "1",
                                         "3",
                                         "65536",
                                         "2147483647",
                                         "4294967296",
                                         "1e18",
                                         "1e308",
                                         "0.5",
                                         "-0",
                                         "null",
                                         "true",
                                         "\"7\"",
                                         "[]",
                                         "{}",
                                         "[1,2]",
                                         "128",
                                         "9223372036854775807",
                                         "16777217",
                                         "18446744073709551615",
                                         "100000000000000000000"};
  size_t start = input.find_first_of("0123456789", pick(random, input.size()));
  if (start == std::string::npos) return;
  size_t end = input.find_first_not_of("0123456789.", start);
  if (end == std::string::npos) end = input.size();
  input.replace(start, end - start, kNumbers[pick(random, std::size(kNumbers))]);
}

void replace_bytes(std::string& input, Random& random) {
  if (input.empty()) return;
  static const uint64_t kValues[] = {
      0, 1, 0x7f, 0xff, 0xffff, 0xffffffff, ~uint64_t{0}, uint64_t{1} << 32, uint64_t{1} << 62};
  uint64_t value = kValues[pick(random, std::size(kValues))];
  size_t width = size_t{1} << pick(random, 4);
  size_t at = pick(random, input.size());
  for (size_t i = 0; i < width && at + i < input.size(); ++i) {
    input[at + i] = static_cast<char>(value >> (8 * i));
  }
}

void copy_range(std::string& input, const std::string& other, Random& random) {
  if (input.empty() || other.empty()) return;
  size_t from = pick(random, other.size()), length = pick(random, 64);
  input.insert(pick(random, input.size()), other.substr(from, length));
}

std::string mutate(std::string input, const std::string& other, Random& random) {
  for (size_t round = 1 + pick(random, 3); round > 0; --round) {
    switch (pick(random, 8)) {
      case 0:
        if (!input.empty()) input[pick(random, input.size())] ^= char(1 << pick(random, 8));
        break;
      case 1:
        replace_bytes(input, random);
        break;
      case 2:
        input.erase(pick(random, input.size()), pick(random, 32));
        break;
      case 3:
        input.resize(pick(random, input.size() + 1));
        break;
      case 4:
        copy_range(input, other, random);
        break;
      default:
        replace_number(input, random);
        break;
    }
  }
  return input;
}

class FuzzReplay : public testing::TestWithParam<Target> {};

std::string target_name(const testing::TestParamInfo<Target>& info) { return info.param.name; }

TEST_P(FuzzReplay, ThrowsNothingButError) {
  const Target& target = GetParam();
  const auto run = [&](const std::string& input) {
    target.input(reinterpret_cast<const uint8_t*>(input.data()), input.size());
  };
  const std::vector<std::string> seeds = target.seeds();
  for (const std::string& seed : seeds) {
    run(seed);
    if (seed.size() > kTruncated) continue;
    for (size_t length = 0; length < seed.size(); ++length) run(seed.substr(0, length));
  }
  Random random(1);
  for (int i = 0; i < mutations(); ++i) {
    const std::string& seed = seeds[pick(random, seeds.size())];
    run(mutate(seed, seeds[pick(random, seeds.size())], random));
  }
}

INSTANTIATE_TEST_SUITE_P(Readers, FuzzReplay, testing::ValuesIn(kTargets), target_name);

}  // namespace
