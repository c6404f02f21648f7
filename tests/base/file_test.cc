#include "base/file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <functional>
#include <string>
#include <thread>

#include "base/error.h"

namespace ridge {
namespace {

namespace fs = std::filesystem;

class Files : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = testing::TempDir() + "ridge_file_XXXXXX";
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
  }
  void TearDown() override { fs::remove_all(folder_); }

  std::string path(const std::string& name) const { return folder_ + "/" + name; }
  size_t entries() const {
    return static_cast<size_t>(std::distance(fs::directory_iterator(folder_), {}));
  }

  std::string folder_;
};

std::string error_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST_F(Files, WrittenContentsReadBack) {
  const std::string contents("a\0b\n", 4);
  write_file(path("f"), contents);
  EXPECT_EQ(read_file(path("f"), 100), contents);
  write_file(path("f"), "");
  EXPECT_EQ(read_file(path("f"), 0), "");
  EXPECT_EQ(entries(), 1u);  // no temporary file stays behind
}

TEST_F(Files, ReadKeepsTheLimit) {
  write_file(path("f"), std::string(1000, 'x'));
  EXPECT_EQ(read_file(path("f"), 1000).size(), 1000u);
  EXPECT_EQ(error_of([&] { read_file(path("f"), 999); }), path("f") + ": larger than 999 B");
}

TEST_F(Files, ReadKeepsTheLimitWhereSizeIsUnknown) {
  EXPECT_NE(error_of([] { read_file("/dev/zero", 1 << 20); }).find("larger than 1 MiB"),
            std::string::npos);
  EXPECT_FALSE(read_file("/proc/self/status", 1 << 20).empty());
}

TEST_F(Files, ReadErrorsAreClear) {
  EXPECT_EQ(error_of([&] { read_file(path("none"), 9); }), path("none") + ": no such file");
  EXPECT_EQ(error_of([&] { read_file(folder_, 9); }), folder_ + ": is a folder");
}

TEST_F(Files, WriteErrorsAreClearAndLeaveNothing) {
  EXPECT_EQ(error_of([&] { write_file(path("no/f"), "x"); }),
            path("no/f") + ": no such folder to write into");
  EXPECT_EQ(error_of([&] { write_file(folder_, "x"); }), folder_ + ": is a folder");
  EXPECT_EQ(entries(), 0u);
}

TEST_F(Files, WriteIntoAForbiddenFolderIsRefused) {
  if (::geteuid() == 0) GTEST_SKIP() << "root may write anywhere";
  ::chmod(folder_.c_str(), 0500);
  EXPECT_EQ(error_of([&] { write_file(path("f"), "x"); }), path("f") + ": permission denied");
  ::chmod(folder_.c_str(), 0700);
}

TEST_F(Files, WriteKeepsPermissionsAndLinks) {
  write_file(path("f"), "old");
  ::chmod(path("f").c_str(), 0640);
  fs::create_symlink("f", path("link"));
  write_file(path("link"), "new");
  EXPECT_TRUE(fs::is_symlink(path("link")));
  EXPECT_EQ(read_file(path("f"), 10), "new");
  struct stat status {};
  ASSERT_EQ(::stat(path("f").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0640u);
}

TEST_F(Files, WriteToADeviceDoesNotReplaceIt) {
  write_file("/dev/null", "x");
  EXPECT_TRUE(fs::is_character_file("/dev/null"));
}

TEST_F(Files, MapShowsTheBytes) {
  write_file(path("f"), "hello");
  EXPECT_EQ(MappedFile(path("f")).bytes(), "hello");
  write_file(path("empty"), "");
  EXPECT_TRUE(MappedFile(path("empty")).bytes().empty());
}

TEST_F(Files, AFifoIsRefusedRatherThanWaitedFor) {
  ASSERT_EQ(::mkfifo(path("fifo").c_str(), 0600), 0);
  const std::string refused = path("fifo") + ": is a FIFO, not a plain file";
  EXPECT_EQ(error_of([&] { read_file(path("fifo"), 10); }), refused);
  EXPECT_EQ(error_of([&] { MappedFile map(path("fifo")); }), refused);
  EXPECT_EQ(error_of([&] { plain_file_size(path("fifo")); }), refused);
  fs::create_symlink("fifo", path("link"));
  EXPECT_EQ(error_of([&] { read_file(path("link"), 10); }),
            path("link") + ": is a FIFO, not a plain file");
}

TEST_F(Files, PipesOfAShellAreRead) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  // The writer comes after the reader has opened the pipe.
  std::jthread writer([&] {
    ASSERT_EQ(::write(ends[1], "hello", 5), 5);
    ::close(ends[1]);
  });
  EXPECT_EQ(read_file("/dev/fd/" + std::to_string(ends[0]), 10), "hello");
  ::close(ends[0]);
  // A FIFO that was opened before, as in `command /dev/stdin < FIFO`.
  ASSERT_EQ(::mkfifo(path("fifo").c_str(), 0600), 0);
  const int both = ::open(path("fifo").c_str(), O_RDWR | O_NONBLOCK);
  ASSERT_GE(both, 0);
  const std::string name = "/dev/fd/" + std::to_string(both);
  const int reader = open_for_reading(name);
  EXPECT_EQ(::fcntl(reader, F_GETFL) & O_NONBLOCK, 0);
  ASSERT_EQ(::write(both, "hello", 5), 5);
  char text[5];
  EXPECT_EQ(::read(reader, text, 5), 5);
  ::close(reader);
  ::close(both);
}

TEST_F(Files, SizeOfAPlainFile) {
  write_file(path("f"), "hello");
  EXPECT_EQ(plain_file_size(path("f")), 5u);
  EXPECT_EQ(error_of([&] { plain_file_size(path("none")); }), path("none") + ": no such file");
  EXPECT_EQ(error_of([&] { plain_file_size("/dev/null"); }), "/dev/null: not a plain file");
}

TEST_F(Files, MapErrorsAreClear) {
  EXPECT_EQ(error_of([&] { MappedFile map(path("none")); }), path("none") + ": no such file");
  EXPECT_EQ(error_of([&] { MappedFile map(folder_); }), folder_ + ": is a folder");
  EXPECT_EQ(error_of([] { MappedFile map("/dev/null"); }), "/dev/null: not a plain file");
}

}  // namespace
}  // namespace ridge
