// Bytes of a file: the same from disk and from memory, plain, gzipped, cut and in several archives.
#include "diagnose/readers/evidence_input.h"

#include <gtest/gtest.h>
#include <unistd.h>
#include <zlib.h>

#include <filesystem>
#include <fstream>

#include "base/error.h"
#include "base/random.h"
#include "diagnose/explain_options.h"

namespace ridge {
namespace {

std::string gzipped(std::string_view text, int level = 6) {
  z_stream stream{};
  deflateInit2(&stream, level, Z_DEFLATED, 16 + MAX_WBITS, 8, Z_DEFAULT_STRATEGY);
  std::string packed(deflateBound(&stream, text.size()), '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  stream.avail_in = uInt(text.size());
  stream.next_out = reinterpret_cast<Bytef*>(packed.data());
  stream.avail_out = uInt(packed.size());
  EXPECT_EQ(deflate(&stream, Z_FINISH), Z_STREAM_END);
  packed.resize(stream.total_out);
  deflateEnd(&stream);
  return packed;
}

struct Unpacked {
  std::string text;
  bool damaged = false;
  bool operator==(const Unpacked&) const = default;
};

Unpacked unpack(const EvidenceInput& input, size_t piece) {
  UnpackBudget budget;
  UnpackedReader reader(input, budget);
  Unpacked result;
  std::string block(piece, '\0');
  while (const size_t got = reader.read(block.data(), piece)) result.text.append(block, 0, got);
  result.damaged = reader.damaged();
  EXPECT_EQ(reader.position(), result.text.size());
  EXPECT_EQ(budget.used, result.text.size());
  return result;
}

class EvidenceInputTest : public testing::Test {
 protected:
  void TearDown() override { std::filesystem::remove(path_); }
  EvidenceInput on_disk(const std::string& bytes) {
    std::ofstream(path_, std::ios::binary) << bytes;
    return {path_};
  }
  const std::string path_ = testing::TempDir() + "evidence-input-" + std::to_string(getpid());
};

TEST_F(EvidenceInputTest, MemoryReadsAsDiskDoes) {
  SplitMix64 words(3);
  std::string text;
  for (int i = 0; i < 400; ++i) text += std::string(words.next() % 300, char('a' + i % 26));
  const std::string one = gzipped(text);
  for (const std::string& bytes :
       {text, one, one + gzipped("more"), one + "rubbish", gzipped(""), std::string()}) {
    const Unpacked disk = unpack(on_disk(bytes), 1000);
    EXPECT_EQ(unpack({"sent", bytes, 0}, 1000), disk);
    EXPECT_FALSE(disk.damaged);
    for (const size_t piece : {size_t{1}, size_t{7}, size_t{1} << 20}) {
      EXPECT_EQ(unpack({"sent", bytes, 0}, piece), disk) << piece;
    }
  }
  // Cut anywhere: what came before the cut, and a note that something is missing.
  for (size_t cut = 20; cut < one.size(); cut += 5) {
    const std::string part = one.substr(0, cut);
    const Unpacked memory = unpack({"sent", part, 0}, 512);
    EXPECT_TRUE(memory.damaged) << cut;
    EXPECT_TRUE(text.starts_with(memory.text)) << cut;
  }
}

TEST_F(EvidenceInputTest, FoldersAndMissingFilesAreErrors) {
  UnpackBudget budget;
  const EvidenceInput folder(testing::TempDir()), none(path_ + "-none");
  EXPECT_THROW(UnpackedReader(folder, budget), Error);
  EXPECT_THROW(UnpackedReader(none, budget), Error);
}

// An archive of a thousandth of its content: reading stops at the budget, not at the end.
TEST_F(EvidenceInputTest, ABudgetBoundsAllFilesTogether) {
  const std::string page = "vllm:num_requests_running 8\n";
  const std::string spaces = gzipped("{\"traceEvents\": [" + std::string(8 << 20, ' ') + "]}");
  const std::string metrics = gzipped(page + std::string(600 << 10, '\n'));
  EXPECT_LT(spaces.size(), 20000u);
  const auto message_of = [](std::vector<EvidenceInput> sent) {
    ExplainOptions options;
    options.sent = std::move(sent);
    options.most_unpacked_bytes = 1 << 20;
    try {
      explain(options);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string("read");
  };
  EXPECT_EQ(message_of({{"bomb.json.gz", spaces, 0}}),
            "bomb.json.gz: the files unpack to more than 1 MiB");
  EXPECT_EQ(message_of({{"a.prom", page, 0}}), "read");
  EXPECT_EQ(message_of({{"a.prom.gz", metrics, 0}}), "read");
  EXPECT_EQ(message_of({{"a.prom.gz", metrics, 0}, {"b.prom.gz", metrics, 0}}),
            "b.prom.gz: the files unpack to more than 1 MiB");
}

}  // namespace
}  // namespace ridge
