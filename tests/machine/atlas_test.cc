// Names, counts, overlays, and the files themselves.
#include "machine/atlas.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include "base/error.h"
#include "base/file.h"

namespace ridge {
namespace {

std::string message_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

// A folder for the user's own machines, gone with the test.
class UserFolder {
 public:
  UserFolder()
      : path_(std::filesystem::temp_directory_path() /
              ("ridge_atlas_" + std::to_string(::getpid()) + "_" +
               testing::UnitTest::GetInstance()->current_test_info()->name())) {
    std::filesystem::create_directories(path_ / "machines");
    set_atlas_folder(path_.string());
  }
  ~UserFolder() {
    set_atlas_folder("");
    std::filesystem::remove_all(path_);
  }
  std::string write(const std::string& name, const std::string& text) const {
    const std::string file = (path_ / "machines" / name).string();
    write_file(file, text);
    return file;
  }

 private:
  std::filesystem::path path_;
};

constexpr const char* kMeasuredH100 = R"({
  "name": "h100-sxm",
  "levels": [{"name": "HBM", "read_bandwidth": 3.0e12}],
  "provenance": {"": {"origin": "measured", "source": "test", "spread": 0.01, "date": "2026-01-01"}}
})";

TEST(Atlas, HasTheMachinesPeopleAskFor) {
  EXPECT_GE(all_machines().size(), 120u);
  const std::pair<const char*, const char*> expected[] = {
      {"h100", "h100-sxm"},
      {"h200", "h200"},
      {"a100", "a100-sxm-80gb"},
      {"b200", "b200"},
      {"gb200", "gb200"},
      {"l4", "l4"},
      {"l40s", "l40s"},
      {"v100", "v100-sxm2"},
      {"t4", "t4"},
      {"4090", "rtx-4090"},
      {"rtx4090", "rtx-4090"},
      {"mi300x", "mi300x"},
      {"m4-max", "m4-max"},
      {"tpu-v5e", "tpu-v5e"},
      {"trainium2", "trainium2"},
      {"epyc-9654", "epyc-9654"},
      {"p100", "p100-sxm2"},
      {"k80", "k80"},
      {"a10g", "a10g"},
      {"h20", "h20"},
      {"h800", "h800"},
      {"h200-nvl", "h200-nvl"},
      {"gh200-144", "gh200-144gb"},
      {"l20", "l20"},
      {"2080 Ti", "rtx-2080-ti"},
      {"RTX 3060", "rtx-3060"},
      {"4080", "rtx-4080"},
      {"5070 Ti", "rtx-5070-ti"},
      {"rtx-pro-6000-workstation", "rtx-pro-6000-workstation"},
      {"7900xtx", "rx-7900-xtx"},
      {"r9700", "r9700"},
      {"w7900", "w7900"},
      {"mi350x", "mi350x"},
      {"mi308x", "mi308x"},
      {"b580", "arc-b580"},
      {"b60", "arc-pro-b60"},
      {"orin", "jetson-agx-orin"},
      {"thor", "jetson-thor"},
      {"dgx-spark", "gb10"},
      {"strix-halo", "strix-halo"},
      {"m1", "m1"},
      {"M2 Ultra", "m2-ultra"},
      {"m3-max", "m3-max"},
      {"grace", "grace"},
      {"graviton4", "graviton4"},
      {"9950x", "ryzen-9950x"},
      {"14900k", "core-i9-14900k"}};
  for (const auto& [typed, name] : expected) EXPECT_EQ(find_machine(typed).name, name) << typed;
}

TEST(Atlas, NamesForgiveCaseAndPunctuation) {
  for (const char* typed :
       {"H100", "h100_sxm", "H100-SXM5", "h100 sxm5", "NVIDIA H100 80GB HBM3", "h100.sxm"}) {
    EXPECT_EQ(find_machine(typed).name, "h100-sxm") << typed;
  }
}

TEST(Atlas, EveryNameAndAliasLeadsToOneMachine) {
  std::set<std::string> seen;
  for (const Machine& machine : all_machines()) {
    std::vector<std::string> names = machine.aliases;
    names.push_back(machine.name);
    for (const std::string& name : names) {
      EXPECT_TRUE(seen.insert(name).second) << name;
      EXPECT_EQ(find_machine(name).name, machine.name) << name;
    }
  }
}

TEST(Atlas, UnknownNamesSuggestTheNearest) {
  const std::string message = message_of([] { find_machine("h10o-sxm"); });
  EXPECT_NE(message.find("unknown machine"), message.npos) << message;
  EXPECT_NE(message.find("h100-sxm"), message.npos) << message;
  for (const char* nothing : {"", "x", "8x", "zzzzzzzzzzzzzzzz"}) {
    EXPECT_THROW(find_system(nothing), Error) << nothing;
  }
}

TEST(Atlas, CountsNameNodesAndClusters) {
  const System one = find_system("h100-sxm");
  EXPECT_EQ(one.devices(), 1);
  EXPECT_EQ(one.name(), "h100-sxm");
  const System node = find_system("8xH100");
  EXPECT_EQ(node.devices_per_node, 8);
  EXPECT_EQ(node.name(), "8xh100-sxm");
  const System cluster = find_system("2x8xh100-sxm");
  EXPECT_EQ(cluster.nodes, 2);
  EXPECT_EQ(cluster.devices(), 16);
  EXPECT_EQ(cluster.name(), "2x8xh100-sxm");
  EXPECT_EQ(find_system("72xgb200").devices(), 72);
  EXPECT_EQ(find_system("8x4090").device.name, "rtx-4090");
  const System desk = find_system("2x7900xtx");  // a part number with an x
  EXPECT_EQ(desk.device.name, "rx-7900-xtx");
  EXPECT_EQ(desk.devices_per_node, 2);
  EXPECT_EQ(find_system("7900-XTX").devices(), 1);
  EXPECT_EQ(find_system("1000x8xh100").nodes, 1000);
}

TEST(Atlas, RefusesAbsurdCounts) {
  for (const char* name : {"0xh100", "-1xh100", "+2xh100", "1.5xh100", "100001xh100",
                           "99999999999999999999xh100", "100000x8xh100", "0x8xh100"}) {
    EXPECT_NE(message_of([&] { find_system(name); }), "") << name;
  }
}

TEST(Atlas, MoreDevicesThanALinkJoinsAsksForNodes) {
  const std::string message = message_of([] { find_system("16xh100-sxm"); });
  EXPECT_NE(message.find("2x8xh100-sxm"), message.npos) << message;
  EXPECT_NE(message_of([] { find_system("24xh100"); }).find("3x8xh100-sxm"), std::string::npos);
  EXPECT_NE(message_of([] { find_system("2xm4-max"); }).find("2x1xm4-max"), std::string::npos);
}

TEST(Atlas, FindMachineWantsOneDevice) { EXPECT_THROW(find_machine("8xh100"), Error); }

TEST(Atlas, UserFilesReplaceNumberByNumber) {
  const Machine plain = find_machine("h100-sxm");
  const UserFolder folder;
  folder.write("mine.json", kMeasuredH100);
  const Machine mine = find_machine("h100");
  EXPECT_EQ(mine.memory().read_bandwidth, 3.0e12);
  EXPECT_EQ(mine.memory().capacity, plain.memory().capacity);
  EXPECT_EQ(mine.levels.size(), plain.levels.size());
  EXPECT_EQ(mine.peak_of(DType::bf16), plain.peak_of(DType::bf16));
  EXPECT_EQ(provenance_of(mine, "levels.HBM.read_bandwidth")->origin, Origin::measured);
  EXPECT_EQ(provenance_of(mine, "levels.L1.capacity")->origin, Origin::datasheet);
  EXPECT_EQ(all_machines().size(), [] {
    set_atlas_folder("");
    return all_machines().size();
  }());
}

TEST(Atlas, UserFilesAddMachines) {
  const UserFolder folder;
  folder.write("new.json", R"({"name": "zx-1", "aliases": ["zed"], "peak": {"bf16": 1e15},
    "levels": [{"name": "HBM", "capacity": 1e11, "read_bandwidth": 5e12}],
    "provenance": {"": {"origin": "estimate", "source": "test"}}})");
  EXPECT_DOUBLE_EQ(*find_machine("ZED").ridge(DType::bf16), 200);
}

TEST(Atlas, AcceptsAPathAndOverlaysTheAtlas) {
  const UserFolder folder;
  const std::string path = folder.write("other-name.json", kMeasuredH100);
  const System system = find_system("8x" + path);
  EXPECT_EQ(system.device.memory().read_bandwidth, 3.0e12);
  EXPECT_EQ(system.device.peak_of(DType::bf16), 989.4e12);
  EXPECT_THROW(find_machine("/nowhere/at/all.json"), Error);
}

TEST(Atlas, AFileThatIsNoMachineAloneSaysSo) {
  const UserFolder folder;
  const std::string path = folder.write("part.json", R"({"name": "nameless"})");
  EXPECT_NE(message_of([&] { find_machine(path); }).find("scope device"), std::string::npos);
}

TEST(Atlas, RefusesAFolderThatIsNotThere) {
  EXPECT_THROW(set_atlas_folder("/no/such/folder"), Error);
}

TEST(Machine, OverlayPutsNewLevelsBesideTheirNeighbour) {
  Machine base, top;
  base.levels = {{"L1", Scope::unit, 1e5, 8, {}, {}}, {"HBM", Scope::device, 1e10, 1, 1e12, {}}};
  top.levels = {{"L1", Scope::device, {}, 1, 9e12, {}}, {"L2", Scope::device, 1e7, 1, 5e12, {}}};
  top.provenance[""] = {Origin::measured, "test", {}, ""};
  const Machine merged = overlay(base, top);
  ASSERT_EQ(merged.levels.size(), 3u);
  EXPECT_EQ(merged.levels[1].name, "L2");
  EXPECT_EQ(merged.levels[0].instances, 8);
  EXPECT_EQ(merged.levels[0].scope, Scope::unit);
  EXPECT_EQ(merged.levels[0].read_bandwidth, 9e12);
  EXPECT_EQ(merged.memory().name, "HBM");
  EXPECT_EQ(merged.cache()->name, "L2");
}

TEST(Machine, ProvenanceComesFromTheLongestPrefix) {
  Machine machine;
  machine.provenance[""] = {Origin::datasheet, "all", {}, ""};
  machine.provenance["levels"] = {Origin::derived, "levels", {}, ""};
  machine.provenance["levels.HBM.latency"] = {Origin::measured, "exact", {}, ""};
  EXPECT_EQ(provenance_of(machine, "levels.HBM.latency")->source, "exact");
  EXPECT_EQ(provenance_of(machine, "levels.HBM.capacity")->source, "levels");
  EXPECT_EQ(provenance_of(machine, "levelsish")->source, "all");
  EXPECT_EQ(provenance_of(machine, "power")->source, "all");
  EXPECT_EQ(provenance_of(Machine{}, "power"), nullptr);
}

}  // namespace
}  // namespace ridge
