#include "page/api.h"

#include <fmt/format.h>

#include <algorithm>
#include <sstream>

#include "base/error.h"
#include "base/text.h"
#include "base/units.h"
#include "diagnose/json.h"
#include "machine/atlas.h"
#include "machine/history.h"
#include "machine/summary.h"
#include "model/model_json.h"
#include "model/read.h"
#include "page/api_options.h"
#include "page/learn.h"
#include "page/motion_api.h"
#include "page/plan_api.h"
#include "plan/endpoint.h"
#include "predict/json.h"
#include "predict/pyramid.h"
#include "predict/roofline_view.h"
#include "predict/sweep.h"
#include "predict/users.h"
#include "roofline/tiles.h"

namespace ridge {
namespace {

// Points of one sweep, and those of them for which the layout on several devices is searched.
constexpr size_t kMaxPoints = 500, kMaxLayoutPoints = 100;
// Predictions that an answer needs beyond its own: levers, bisections, the ridge's batch.
constexpr double kDeepPredictions = 100;

constexpr const char* kTileOptions[][2] = {
    {"machine", "Machine, by name"},
    {"tile", "Output tile and depth of a step: 128x128x64"},
    {"dtype", "Element type of both operands"},
    {"stages", "Buffers in shared memory"},
    {"steps", "Steps along K"},
    {"reuse", "Share of loads that hit the cache, 0 to 1"},
};

Json machines(const ApiOptions&) {
  Json list = Json::array();
  for (const Machine& machine : all_machines()) list.push_back(machine_summary(machine));
  return list;
}

Json models(const ApiOptions& given) {
  if (const std::string* name = find_option(given, "name")) {
    return model_details(find_model(*name, Sources::names_only));
  }
  // The embedded models cannot change while the program runs.
  static const Json list = [] {
    Json all = Json::array();
    for (const std::string& name : builtin_model_names()) {
      all.push_back(model_summary(find_model(name)));
    }
    return all;
  }();
  return list;
}

Json prediction(const ApiOptions& given) {
  const Request request = request_of(given, 1);
  return to_json(request, predict(request));
}

// An endpoint by clients, or by rate where one is given: what its clients see.
Json endpoint(const ApiOptions& given) {
  constexpr double kMostClients = 4096;  // a simulation takes time
  ApiOptions rest = given;
  for (const char* name : {"batch", "context"}) rest.erase(name);  // they follow from the load
  if (rest.contains("rate"))
    rest.erase("clients");
  else
    rest.try_emplace("clients", "32");
  const Request request = request_of(rest, kDeepPredictions);
  if (*request.clients > kMostClients) {
    throw OptionError("clients", fmt::format("at most {} clients here", kMostClients));
  }
  constexpr double kMostAnswers = 10e6;  // tokens of all clients' answers at once
  if (*request.clients * request.output > kMostAnswers) {
    throw OptionError("output", fmt::format("clients times output must be at most {} tokens here",
                                            pretty_count(kMostAnswers)));
  }
  const Prediction p = predict(request);
  if (!p.endpoint) throw OptionError("model", "not even one request fits the memory");
  const Json whole = to_json(request, p);
  Json json = whole.at("serving");
  json["simulated"] = simulated_json(simulate_service(request));
  json["dollars_per_mtok"] = whole.at("dollars_per_mtok");
  return json;
}

// Numbers only: a server reads no files for strangers. Model and machine are the page's defaults
// where they are not given, as everywhere in this API.
Json explanation(const ApiOptions& given) {
  return to_json(explain(explain_options_of(given), Sources::names_only));
}

ExplainOptions asked_explanation(const ApiOptions& given) {
  ExplainOptions options;
  for (const QuantityInfo& about : all_quantities()) {
    if (!about.option) continue;
    if (const std::string* value = find_option(given, about.option)) {
      options.stated[about.quantity] = *value;
    }
  }
  ApiOptions rest = given;
  for (const char* name : {"batch", "output"}) rest.erase(name);  // here they are what was seen
  request_of(rest, kDeepPredictions);
  options.request = request_options_of(rest);
  return options;
}

Json roofline(const ApiOptions& given) {
  const Request request = request_of(given, kDeepPredictions);
  std::vector<System> others;
  if (const std::string* names = find_option(given, "compare")) {
    std::stringstream stream(*names);
    for (std::string name; std::getline(stream, name, ',');) {
      if (others.size() == 8) throw OptionError("compare", "at most 8 machines to compare with");
      try {
        others.push_back(find_system(name, Sources::names_only));
      } catch (const Error& error) {
        throw OptionError("compare", error.what());
      }
    }
  }
  return roofline_json(request, predict(request), others);
}

Json pyramid(const ApiOptions& given) {
  const Request request = request_of(given, 1);
  const Prediction p = predict(request);
  Json json = pyramid_json(request.system, *request.model);
  json["residents"] = residents_json(request, p);
  return json;
}

Json tiles(const ApiOptions& given) {
  TileOptions options;
  if (const std::string* tile = find_option(given, "tile")) options.tile = *tile;
  if (const std::string* machine = find_option(given, "machine")) options.machine = *machine;
  const Machine machine = find_system(options.machine, Sources::names_only).device;
  const std::string* dtype = find_option(given, "dtype");
  options.dtype = dtype ? *dtype : dtype_name(tile_dtype(machine));
  const double stages = number_option(given, "stages", options.stages);
  const double steps = number_option(given, "steps", options.steps);
  if (!(stages >= 1 && stages <= 64)) throw OptionError("stages", "stages must be from 1 to 64");
  if (!(steps >= 1 && steps <= 1000)) throw OptionError("steps", "steps must be from 1 to 1000");
  options.stages = int(stages);
  options.steps = int(steps);
  options.reuse = number_option(given, "reuse", options.reuse);
  return tiles_json(machine, tile_shape(options));
}

Json sweep(const ApiOptions& given) {
  const RequestGrid grid =
      make_requests(request_options_of(given), Sources::names_only, kMaxPoints, kMaxLayoutPoints);
  check_effort(grid.requests, 1);
  return sweep_json(grid, predict_all(grid.requests));
}

Json users(const ApiOptions& given) {
  const std::string* target = find_option(given, "target");
  if (!target) throw OptionError("target", "target must be a time per token, such as 50ms");
  double seconds = 0;
  try {
    seconds = parse_seconds(*target, "--target");
  } catch (const Error& error) {
    throw OptionError("target", error.what());
  }
  return users_json(request_of(given, kDeepPredictions), seconds);
}

Json stacks(const ApiOptions&) {
  Json list = Json::array();
  for (const std::string& name : stack_names()) {
    const Stack stack = find_stack(name);
    list.push_back({{"name", stack.name},
                    {"title", stack.title},
                    {"basis", stack.basis},
                    {"calibrated", stack.calibrated}});
  }
  return list;
}

Json history(const ApiOptions&) {
  const std::vector<Machine> all = all_machines();
  const std::vector<Epoch> epochs = peak_records(all);
  if (epochs.empty()) throw Error("no data-centre GPU with a known year, peak and bandwidth");
  return history_json(epochs);
}

Json learn(const ApiOptions&) { return learn_json(); }

Json openapi(const ApiOptions&) { return openapi_json(); }

constexpr ApiEndpoint kEndpoints[] = {
    {"/api/machines", "Every machine of the atlas", OptionSet::none, "", "", machines},
    {"/api/models", "Every built-in model, or one with all its parts", OptionSet::none, "name",
     "One model by name", models},
    {"/api/stacks", "Every software stack", OptionSet::none, "", "", stacks},
    {"/api/predict", "How fast can it go: ridge predict --json", OptionSet::request, "", "",
     prediction},
    {"/api/endpoint", "What the clients of an endpoint see, with --clients or --rate",
     OptionSet::request, "", "", endpoint},
    {"/api/explain", "Which wall is that: ridge explain --json", OptionSet::explain, "", "",
     explanation},
    {"/api/roofline", "Roofs, ridges and every operator's place", OptionSet::request, "compare",
     "Machines to compare with, comma-separated", roofline},
    {"/api/pyramid", "Memory levels, and which parts of the model each holds", OptionSet::request,
     "", "", pyramid},
    {"/api/tiles", "Tiles on their way to the matrix units: ridge tiles --json", OptionSet::tiles,
     "", "", tiles},
    {"/api/attention",
     "Attention with stored scores and in tiles: bytes, times and one row's trace",
     OptionSet::request, "", "", attention_trace, kAttentionOptions},
    {"/api/pages", "What happens to each page of the KV cache as sequences grow, fork and end",
     OptionSet::request, "", "", page_trace, kPageOptions},
    {"/api/schedule", "Every step of the serving scheduler over one list of requests",
     OptionSet::request, "", "", schedule_trace, kScheduleOptions},
    {"/api/speculation", "Rounds of drafting and verification beside plain decoding",
     OptionSet::request, "", "", speculation_trace, kSpeculationOptions},
    {"/api/sweep", "Many predictions, one line each", OptionSet::request, "", "", sweep},
    {"/api/plan",
     "The cheapest machines that meet targets: ridge plan --json",
     OptionSet::plan,
     "",
     "",
     nullptr,
     {},
     plan_answer_for},
    {"/api/users", "Users at once within a latency target", OptionSet::request, "target",
     "Time per token, for example 50ms", users},
    {"/api/history", "Peak, bandwidth and ridge by year", OptionSet::none, "", "", history},
    {"/api/learn", "The machine and model that the page's Learn path computes with",
     OptionSet::none, "", "", learn},
    {"/api/work", "FLOPs, bytes and place under the roof of one matrix product", OptionSet::none,
     "", "", work_of_product, kWorkOptions},
    {"/api/openapi.json", "This description", OptionSet::none, "", "", openapi},
};

}  // namespace

std::span<const ApiEndpoint> api_endpoints() { return kEndpoints; }

const ApiEndpoint* find_api_endpoint(std::string_view path) {
  const auto* found = std::find_if(std::begin(kEndpoints), std::end(kEndpoints),
                                   [&](const ApiEndpoint& e) { return path == e.path; });
  return found == std::end(kEndpoints) ? nullptr : found;
}

std::vector<std::pair<std::string, std::string>> options_of(const ApiEndpoint& endpoint) {
  std::vector<std::pair<std::string, std::string>> options;
  if (endpoint.set == OptionSet::explain) {
    for (const QuantityInfo& about : all_quantities()) {
      if (about.option) options.emplace_back(about.option, about.help);
    }
  }
  if (endpoint.set == OptionSet::request || endpoint.set == OptionSet::explain) {
    for (const RequestOption& option : request_options()) {
      const bool taken = std::any_of(options.begin(), options.end(),
                                     [&](const auto& known) { return known.first == option.name; });
      if (!taken) options.emplace_back(option.name, option.help);
    }
  }
  if (endpoint.set == OptionSet::tiles) {
    for (const auto& [name, help] : kTileOptions) options.emplace_back(name, help);
  }
  for (const auto& [name, help] : endpoint.more) options.emplace_back(name, help);
  if (endpoint.set == OptionSet::plan) options = plan_api_options();
  if (*endpoint.extra) options.emplace_back(endpoint.extra, endpoint.extra_help);
  return options;
}

namespace {

void check_known(const ApiEndpoint& endpoint, const ApiOptions& options) {
  std::vector<std::string> known;
  for (auto& [name, help] : options_of(endpoint)) known.push_back(std::move(name));
  check_known_options(options, known);
}

}  // namespace

ExplainOptions explain_options_of(const ApiOptions& options) {
  check_known(*find_api_endpoint("/api/explain"), options);
  return asked_explanation(options);
}

Json answer(const ApiEndpoint& endpoint, const ApiOptions& options, const Cancelled& cancelled) {
  check_known(endpoint, options);
  return endpoint.search ? endpoint.search(options, cancelled) : endpoint.answer(options);
}

}  // namespace ridge
