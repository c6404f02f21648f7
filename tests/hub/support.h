// A cache in a temporary folder, with the environment that names it.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>

#include "base/error.h"

namespace ridge {

class HubFolder : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = (std::filesystem::temp_directory_path() / "ridge-hub-XXXXXX").string();
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    cache_ = name;
    for (const char* variable : {"HF_HOME", "HF_HUB_CACHE", "XDG_CACHE_HOME", "HF_TOKEN",
                                 "HF_TOKEN_PATH", "HF_ENDPOINT", "no_proxy"}) {
      const char* value = std::getenv(variable);
      if (value != nullptr) before_[variable] = value;
      unsetenv(variable);
    }
    set("HF_HUB_CACHE", cache_.string());
    set("HF_HOME", (cache_ / "home").string());
    set("no_proxy", "127.0.0.1");
  }
  void TearDown() override {
    for (const char* variable : {"HF_HOME", "HF_HUB_CACHE", "XDG_CACHE_HOME", "HF_TOKEN",
                                 "HF_TOKEN_PATH", "HF_ENDPOINT", "no_proxy"}) {
      unsetenv(variable);
    }
    for (const auto& [variable, value] : before_) set(variable.c_str(), value);
    std::filesystem::remove_all(cache_);
  }
  static void set(const char* variable, const std::string& value) {
    setenv(variable, value.c_str(), 1);
  }
  static void write(const std::filesystem::path& path, const std::string& bytes) {
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path, std::ios::binary) << bytes;
  }
  static std::string slurp(const std::filesystem::path& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  template <typename Call>
  static std::string error_of(const Call& call) {
    try {
      call();
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  }

  std::filesystem::path cache_;

 private:
  std::map<std::string, std::string> before_;
};

}  // namespace ridge
