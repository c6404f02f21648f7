#include "hub/hub_cache.h"

#include "support.h"

namespace ridge {
namespace {

namespace fs = std::filesystem;

class HubCache : public HubFolder {
 protected:
  // A snapshot as huggingface_hub lays it out.
  void add_snapshot(const std::string& commit, const std::vector<std::string>& files) {
    for (const std::string& file : files) write(repo_ / "snapshots" / commit / file, "x");
  }
  void SetUp() override {
    HubFolder::SetUp();
    repo_ = cache_ / "models--Qwen--Qwen3-0.6B";
  }
  fs::path snapshot(const std::string& commit) const { return repo_ / "snapshots" / commit; }

  fs::path repo_;
  const std::string first_ = std::string(40, '1'), second_ = std::string(40, '2');
};

TEST(HubName, Forms) {
  const auto plain = parse_hub_name("Qwen/Qwen3-0.6B");
  ASSERT_TRUE(plain);
  EXPECT_EQ(plain->repo, "Qwen/Qwen3-0.6B");
  EXPECT_EQ(plain->revision, "main");
  EXPECT_EQ(plain->file, "");
  const auto full = parse_hub_name("org/name@refs/pr/1:q4/model-Q4_0.gguf");
  ASSERT_TRUE(full);
  EXPECT_EQ(full->repo, "org/name");
  EXPECT_EQ(full->revision, "refs/pr/1");
  EXPECT_EQ(full->file, "q4/model-Q4_0.gguf");
}

TEST(HubName, OtherTexts) {
  for (const char* text : {"",
                           "name",
                           "/",
                           "/name",
                           "org/",
                           "./name",
                           "../name",
                           "/org/name",
                           "a/b/c",
                           "~/models",
                           "org/na me",
                           "org/name@",
                           "org/name:",
                           "org/name@../x",
                           "org/name:../x",
                           "org/name:/x",
                           "folder/model.gguf",
                           "folder/config.json",
                           "folder/x.safetensors",
                           "org/a--b",
                           "-a/b",
                           "a/b.",
                           "What is 1/2?",
                           "a\\b/c"}) {
    EXPECT_FALSE(parse_hub_name(text)) << text;
  }
  EXPECT_FALSE(parse_hub_name("org/" + std::string(97, 'a')));
}

TEST(HubName, SafePaths) {
  for (const char* path : {"config.json", "a/b.gguf", "..a", "a..b", "x y"}) {
    EXPECT_TRUE(is_safe_relative_path(path)) << path;
  }
  for (const char* path : {"", "..", "../a", "a/..", "a/../b", "/a", "a//b", "a/", ".", "./a",
                           "a\\b", "a\nb", "a\x7f"}) {
    EXPECT_FALSE(is_safe_relative_path(path)) << path;
  }
  EXPECT_FALSE(is_safe_relative_path(std::string("a\0b", 3)));
  EXPECT_FALSE(is_safe_relative_path(std::string(256, 'a')));
}

TEST_F(HubCache, FolderFollowsTheEnvironment) {
  set("HF_HUB_CACHE", "/a");
  EXPECT_EQ(hub_cache_folder(), "/a");
  unsetenv("HF_HUB_CACHE");
  set("HF_HOME", "/b");
  set("XDG_CACHE_HOME", "/c");
  EXPECT_EQ(hub_cache_folder(), "/b/hub");
  unsetenv("HF_HOME");
  EXPECT_EQ(hub_cache_folder(), "/c/huggingface/hub");
  unsetenv("XDG_CACHE_HOME");
  EXPECT_EQ(hub_cache_folder(), fs::path(getenv("HOME")) / ".cache/huggingface/hub");
}

TEST_F(HubCache, RevisionsByBranchTagAndCommit) {
  add_snapshot(first_, {"config.json", "model.safetensors"});
  add_snapshot(second_, {"config.json", "model.safetensors"});
  write(repo_ / "refs/main", first_ + "\n");
  write(repo_ / "refs/v2", second_);
  EXPECT_EQ(find_cached_model("Qwen/Qwen3-0.6B"), snapshot(first_));
  EXPECT_EQ(find_cached_model("Qwen/Qwen3-0.6B@v2"), snapshot(second_));
  EXPECT_EQ(find_cached_model("Qwen/Qwen3-0.6B@" + second_), snapshot(second_));
  EXPECT_EQ(find_cached_model("Qwen/Qwen3-0.6B:config.json"), snapshot(first_) / "config.json");
  EXPECT_FALSE(find_cached_model("Qwen/Qwen3-0.6B@v3"));
  EXPECT_FALSE(find_cached_model("Qwen/Qwen3-0.6B:other.json"));
  EXPECT_FALSE(find_cached_model("Qwen/Qwen3-1.7B"));
  EXPECT_EQ(snapshot_model_name(snapshot(first_)), "Qwen3-0.6B");
  EXPECT_EQ(snapshot_model_name("/models/Qwen3-0.6B"), "");
}

TEST_F(HubCache, RefThatIsNoCommitIsNotFollowed) {
  write(cache_ / "config.json", "x");
  write(repo_ / "refs/main", "../../..");
  EXPECT_FALSE(find_cached_model("Qwen/Qwen3-0.6B"));
}

TEST_F(HubCache, TheOnlyGgufIsTheModel) {
  add_snapshot(first_, {"config.json", "q4/m-00002-of-00002.gguf", "q4/m-00001-of-00002.gguf"});
  write(repo_ / "refs/main", first_);
  EXPECT_EQ(find_cached_model("Qwen/Qwen3-0.6B"), snapshot(first_) / "q4/m-00001-of-00002.gguf");
  add_snapshot(first_, {"m-q8_0.gguf"});
  const std::string several = error_of([] { find_cached_model("Qwen/Qwen3-0.6B"); });
  EXPECT_NE(several.find("m-q8_0.gguf"), several.npos) << several;
  EXPECT_NE(several.find("q4/m-00001-of-00002.gguf"), several.npos) << several;
  EXPECT_EQ(find_cached_model("Qwen/Qwen3-0.6B:m-q8_0.gguf"), snapshot(first_) / "m-q8_0.gguf");
  // Beside safetensors it is another form of the same model.
  add_snapshot(first_, {"model.safetensors"});
  EXPECT_EQ(find_cached_model("Qwen/Qwen3-0.6B"), snapshot(first_));
}

TEST_F(HubCache, LocalPathWins) {
  add_snapshot(first_, {"config.json"});
  write(repo_ / "refs/main", first_);
  const fs::path before = fs::current_path();
  fs::create_directories(cache_ / "work/Qwen/Qwen3-0.6B");
  fs::current_path(cache_ / "work");
  EXPECT_FALSE(find_cached_model("Qwen/Qwen3-0.6B"));
  EXPECT_NO_THROW(check_pulled("Qwen/Qwen3-0.6B"));
  fs::current_path(before);
}

TEST_F(HubCache, MissingModelsNameTheCommand) {
  EXPECT_EQ(error_of([] { check_pulled("org/name@v1:x.gguf"); }),
            "org/name@v1:x.gguf is neither a path nor in the Hugging Face cache " +
                cache_.string() + ": ridge pull org/name x.gguf --revision v1");
  EXPECT_NO_THROW(check_pulled("llama-3-8b"));
}

}  // namespace
}  // namespace ridge
