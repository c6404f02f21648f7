// Machine files: what is read, what is refused, and that nothing is lost.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/json.h"
#include "machine/atlas.h"

namespace ridge {
namespace {

using nlohmann::json;

json minimal() {
  return {{"name", "m"},
          {"levels", json::array({{{"name", "HBM"}, {"read_bandwidth", 1e12}}})},
          {"provenance", {{"", {{"origin", "datasheet"}, {"source", "test"}}}}}};
}

std::string refusal(const json& object) {
  try {
    machine_from_json(object, "file.json");
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

void expect_refused(const json& object, const std::string& naming) {
  const std::string message = refusal(object);
  EXPECT_NE(message.find(naming), message.npos) << naming << " in: " << message;
  EXPECT_EQ(message.rfind("file.json", 0), 0u) << message;
}

TEST(MachineJson, EveryAtlasEntrySurvivesTheRoundTrip) {
  for (const Machine& machine : all_machines()) {
    const json written = machine_to_json(machine);
    const Machine again = machine_from_json(parse_json(written.dump(), machine.name), machine.name);
    EXPECT_EQ(machine_to_json(again), written) << machine.name;
    EXPECT_EQ(known_numbers(again), known_numbers(machine)) << machine.name;
  }
}

TEST(MachineJson, TheLeastFileIsEnough) {
  const Machine machine = machine_from_json(minimal(), "file.json");
  EXPECT_EQ(machine.memory().read_bandwidth, 1e12);
  EXPECT_EQ(machine.title, "");
  EXPECT_FALSE(machine.year || machine.units || machine.power || machine.peak_of(DType::bf16));
  EXPECT_FALSE(machine.ridge(DType::bf16));
}

TEST(MachineJson, LinksKeepTheirPoints) {
  json object = minimal();
  object["links"] = json::array({{{"name", "MPI"},
                                  {"bandwidth", 1e9},
                                  {"exchanges", {{8, 7e-7}, {4096, 3e-6}}},
                                  {"messages", {{4, 4e-7}, {16384, 5e-6}}}}});
  const Machine machine = machine_from_json(object, "file.json");
  const json written = machine_to_json(machine)["links"][0];
  EXPECT_EQ(written["exchanges"], object["links"][0]["exchanges"]);
  EXPECT_EQ(written["messages"], object["links"][0]["messages"]);
  for (const json& wrong :
       {json{{8, 7e-7}, {8, 8e-7}}, json{{8, -1}}, json{{8}}, json::array({json::array({"8", 1})}),
        json{{0, 1e-6}}, json{{8, 100}}}) {
    object["links"][0]["exchanges"] = wrong;
    expect_refused(object, "exchanges: pairs of bytes and seconds, from small to large");
  }
}

TEST(MachineJson, UnknownFieldsAreNamed) {
  json object = minimal();
  object["pwoer"] = 3;
  expect_refused(object, "\"pwoer\" (did you mean \"power\"?)");
  object = minimal();
  object["levels"][0]["bandwidth"] = 1;
  expect_refused(object, "bandwidth");
  object = minimal();
  object["launch"] = {{"steam", 1e-6}};
  expect_refused(object, "steam");
  object = minimal();
  object["provenance"][""]["when"] = "now";
  expect_refused(object, "when");
}

TEST(MachineJson, UnknownFormatsAreNamed) {
  json object = minimal();
  object["peak"] = {{"fp17", 1e12}};
  expect_refused(object, "fp17");
  object["peak"] = {{"bf16", "fast"}};
  expect_refused(object, "bf16");
}

TEST(MachineJson, NumbersOutOfRangeAreNamed) {
  const std::pair<const char*, json> cases[] = {
      {"year", 12},   {"units", 0},     {"clock", 2.1},        {"power", -5},
      {"lanes", 1e9}, {"year", "2022"}, {"price_per_hour", -1}};
  for (const auto& [key, value] : cases) {
    json object = minimal();
    object[key] = value;
    expect_refused(object, key);
  }
  json object = minimal();
  object["peak"] = {{"bf16", 0}};  // unknown is left out, never zero
  expect_refused(object, "bf16");
  object = minimal();
  object["levels"][0]["read_bandwidth"] = 3350;  // forgot the unit
  EXPECT_EQ(refusal(object), "");                // a slow machine, but a possible one
  object["levels"][0]["read_bandwidth"] = 0;
  expect_refused(object, "read_bandwidth");
  object = minimal();
  object["links"] = json::array({{{"name", "L"}, {"max_devices", 0}}});
  expect_refused(object, "max_devices");
}

TEST(MachineJson, EveryNumberNeedsAProvenance) {
  json object = minimal();
  object["provenance"] = json::object();
  expect_refused(object, "levels.HBM.read_bandwidth has no provenance");
  object["provenance"] = {{"levels.HBM", {{"origin", "measured"}, {"source", "here"}}}};
  EXPECT_EQ(refusal(object), "");
  object["power"] = 300;
  expect_refused(object, "power has no provenance");
  object = minimal();
  object["provenance"][""] = {{"origin", "rumour"}, {"source", "x"}};
  expect_refused(object, "rumour");
  object["provenance"][""] = {{"origin", "derived"}};
  expect_refused(object, "source");
}

TEST(MachineJson, ShapesAreChecked) {
  expect_refused(json::array(), "object");
  expect_refused(json(3), "object");
  json object = minimal();
  object.erase("name");
  expect_refused(object, "name");
  for (const char* key : {"levels", "links", "aliases"}) {
    object = minimal();
    object[key] = 7;
    expect_refused(object, key);
  }
  for (const char* key : {"peak", "sustained", "launch", "provenance"}) {
    object = minimal();
    object[key] = json::array();
    expect_refused(object, key);
  }
  object = minimal();
  object["levels"].push_back(object["levels"][0]);
  expect_refused(object, "twice");
  object = minimal();
  object["levels"][0]["name"] = "H.B.M";
  expect_refused(object, "dot");
  object = minimal();
  object["levels"][0]["scope"] = "galaxy";
  expect_refused(object, "galaxy");
  object = minimal();
  object["kind"] = "abacus";
  expect_refused(object, "abacus");
}

}  // namespace
}  // namespace ridge
