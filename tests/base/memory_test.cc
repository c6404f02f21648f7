#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>

#include "base/mapped_buffer.h"
#include "base/memory_limit.h"

namespace ridge {
namespace {

TEST(MappedBuffer, IsAlignedZeroedAndWritable) {
  constexpr size_t kHugePage = size_t{2} << 20;
  for (const Pages pages : {Pages::small, Pages::huge}) {
    const MappedBuffer buffer(kHugePage + 1, pages);
    ASSERT_TRUE(buffer);
    EXPECT_EQ(buffer.size(), 2 * kHugePage);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer.as<char>()) % kHugePage, 0u);
    const char* bytes = buffer.as<char>();
    EXPECT_TRUE(std::all_of(bytes, bytes + buffer.size(), [](char byte) { return byte == 0; }));
    std::fill_n(buffer.as<char>(), buffer.size(), 'x');
    EXPECT_EQ(bytes[buffer.size() - 1], 'x');
    EXPECT_GE(buffer.huge_share(), 0);
    EXPECT_LE(buffer.huge_share(), 1);
    if (pages == Pages::small) {
      EXPECT_EQ(buffer.huge_share(), 0);
    }
  }
}

TEST(MappedBuffer, RefusedMappingIsEmpty) {
  const MappedBuffer buffer(size_t{1} << 60);
  EXPECT_FALSE(buffer);
  EXPECT_EQ(buffer.as<char>(), nullptr);
}

TEST(MemoryLimit, LiesWithinPhysicalMemory) {
  const double physical =
      static_cast<double>(sysconf(_SC_PHYS_PAGES)) * static_cast<double>(sysconf(_SC_PAGESIZE));
  ASSERT_TRUE(memory_limit());
  EXPECT_GT(*memory_limit(), 0);
  EXPECT_LE(*memory_limit(), physical);
  EXPECT_GT(free_bytes(), 0);
  EXPECT_LE(free_bytes(), *memory_limit());
}

}  // namespace
}  // namespace ridge
