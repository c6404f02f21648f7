// What `ridge machine` prints.
#include "cli/machine_view.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "base/text.h"
#include "cli/command.h"
#include "machine/atlas.h"
#include "model/read.h"

namespace ridge {
namespace {

std::string printed(const std::function<void()>& action) {
  force_colour(false);
  testing::internal::CaptureStdout();
  try {
    action();
  } catch (...) {
    testing::internal::GetCapturedStdout();
    throw;
  }
  return testing::internal::GetCapturedStdout();
}

std::string command(const std::string& arguments) {
  CLI::App app("test", "ridge");
  Global global;
  app.add_flag("--json", global.json);
  app.fallthrough();
  add_machine_command(app, global);
  return printed([&] { app.parse(arguments); });
}

bool holds(const std::string& text, const std::string& part) {
  return text.find(part) != text.npos;
}

TEST(MachineView, ListShowsEveryMachineOnce) {
  const std::string text = command("machine");
  for (const Machine& machine : all_machines()) EXPECT_TRUE(holds(text, machine.name));
  const nlohmann::json list = nlohmann::json::parse(command("machine --json"));
  EXPECT_EQ(list.size(), all_machines().size());
  for (const nlohmann::json& entry : list) {
    EXPECT_TRUE(entry.contains("ridge") && entry.contains("bandwidth")) << entry;
  }
  const std::string csv = command("machine --csv");
  EXPECT_EQ(std::count(csv.begin(), csv.end(), '\n'), 1 + static_cast<long>(list.size()));
}

TEST(MachineView, PyramidNamesLevelsRidgeAndSources) {
  const std::string text = command("machine h100-sxm");
  for (const char* part : {"registers", "L1", "L2", "HBM", "host", "network", "3.35 TB/s", "295",
                           "591", "NVLink4", "Sources", "llama-3-8b"}) {
    EXPECT_TRUE(holds(text, part)) << part << " in:\n" << text;
  }
  EXPECT_FALSE(holds(text, "nan")) << text;
}

TEST(MachineView, Claim14_TilesFitSharedMemory) {
  const nlohmann::json shown = nlohmann::json::parse(command("machine h100-sxm --json"));
  const nlohmann::json& tile = shown["fits"]["pieces"][0];
  EXPECT_EQ(tile["bytes"], 32768);
  EXPECT_EQ(tile["count"]["L1"], 7 * 132);  // seven tiles of 32 KiB in each 228 KiB
}

TEST(MachineView, UnknownPrintsAsAQuestionMark) {
  const std::string text = command("machine inferentia2");
  EXPECT_TRUE(holds(text, "NeuronLink-v2: ? one way")) << text;
}

TEST(MachineView, ANodeShowsTotals) {
  const std::string text = command("machine 8xh100-sxm");
  for (const char* part : {"8xh100-sxm", "684 GB", "26.8 TB/s", "7.92 PFLOP/s", "5.6 kW"}) {
    EXPECT_TRUE(holds(text, part)) << part << " in:\n" << text;
  }
  EXPECT_TRUE(holds(command("machine 2x8xh100-sxm"), "network of a node"));
  EXPECT_EQ(nlohmann::json::parse(command("machine 2x8xh100 --json"))["system"]["devices"], 16);
}

TEST(MachineView, CompareEndsWithWhatItMeans) {
  const std::string text = command("machine compare h100-sxm h200");
  EXPECT_TRUE(holds(text, "decode at small batch runs 1.43 times as fast")) << text;
  EXPECT_TRUE(holds(text, "prefill of long prompts runs about as fast")) << text;
  const nlohmann::json both = nlohmann::json::parse(command("machine compare h100 h200 --json"));
  EXPECT_NEAR(both["decode_ratio"].get<double>(), 4.8 / 3.35, 1e-12);
  EXPECT_EQ(both["prefill_ratio"], 1.0);
}

TEST(MachineView, CompareWorksForEveryPairWithTheH100) {
  const System h100 = find_system("h100");
  for (const Machine& machine : all_machines()) {
    const std::string text = printed([&] {
      print_machine_comparison(h100, System{machine, 1, 1}, {});
    });
    EXPECT_TRUE(holds(text, machine.name));
    EXPECT_FALSE(holds(text, "nan") || holds(text, "inf ")) << text;
  }
}

TEST(MachineView, EveryMachineCanBeShown) {
  const Model model = find_model("llama-3-8b");
  for (const Machine& machine : all_machines()) {
    const std::string text = printed([&] { print_machine(System{machine, 1, 1}, model, {}); });
    EXPECT_TRUE(holds(text, machine.title)) << machine.name;
    EXPECT_TRUE(holds(text, "Sources")) << machine.name;
  }
}

TEST(MachineView, Claim20_HistoryRunsFromFermiToBlackwell) {
  const std::string text = command("machine --history");
  EXPECT_TRUE(holds(text, "Fermi")) << text;
  EXPECT_TRUE(holds(text, "Blackwell")) << text;
  const nlohmann::json history = nlohmann::json::parse(command("machine --history --json"));
  const nlohmann::json& records = history["records"];
  ASSERT_GE(records.size(), 10u);
  for (size_t i = 1; i < records.size(); ++i) {
    EXPECT_GT(records[i]["peak"], records[i - 1]["peak"]);
    EXPECT_GT(records[i]["year"], records[i - 1]["year"]);
  }
  const nlohmann::json& growth = history["growth"][0];
  EXPECT_GT(growth["peak"].get<double>(), 10 * growth["bandwidth"].get<double>());
}

TEST(MachineView, HistoryWritesAPicture) {
  const std::string file =
      (std::filesystem::temp_directory_path() / ("ridge_history_" + std::to_string(::getpid())))
          .string();
  command("machine --history --svg " + file);
  EXPECT_TRUE(holds(read_file(file, 1 << 20), "<svg"));
  std::filesystem::remove(file);
}

TEST(MachineView, MisplacedOptionsAreRefused) {
  EXPECT_ANY_THROW(command("machine h100 --csv"));
  EXPECT_ANY_THROW(command("machine --svg x.svg"));
  EXPECT_ANY_THROW(command("machine h100 --model no-such-model-at-all"));
  EXPECT_ANY_THROW(command("machine compare h100"));
}

}  // namespace
}  // namespace ridge
