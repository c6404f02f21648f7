#include "page/api.h"
#include "page/explain_files.h"

namespace ridge {
namespace {

Json response(const char* text, const char* schema) {
  return {{"description", text},
          {"content",
           {{"application/json",
             {{"schema", {{"$ref", std::string("#/components/schemas/") + schema}}}}}}}};
}

Json responses() {
  return {{"200", response("The answer", "Answer")},
          {"400", response("An option is wrong; the message says why", "Error")},
          {"413", response("The body is too large", "Error")}};
}

Json operation(const ApiEndpoint& endpoint, bool post) {
  Json parameters = Json::array(), properties = Json::object();
  for (const auto& [name, help] : options_of(endpoint)) {
    parameters.push_back(
        {{"name", name}, {"in", "query"}, {"description", help}, {"schema", {{"type", "string"}}}});
    properties[name] = {{"type", {"string", "number", "boolean", "array"}}, {"description", help}};
  }
  Json json{{"summary", endpoint.summary}, {"responses", responses()}};
  if (!post) {
    json["parameters"] = parameters;
  } else {
    const Json schema{
        {"type", "object"}, {"properties", properties}, {"additionalProperties", false}};
    json["requestBody"] = {{"content", {{"application/json", {{"schema", schema}}}}}};
  }
  return json;
}

}  // namespace

Json openapi_json() {
  Json paths = Json::object();
  for (const ApiEndpoint& endpoint : api_endpoints()) {
    paths[endpoint.path]["get"] = operation(endpoint, false);
    if (!options_of(endpoint).empty()) paths[endpoint.path]["post"] = operation(endpoint, true);
  }
  paths["/api/lab"]["get"] = {{"summary", "Experiments of ridge lab, with the results known"},
                              {"responses", {{"200", response("All of them", "Answer")}}}};
  paths["/api/lab/run"]["post"] = {
      {"summary", "Starts one experiment: ?name=NAME, quick=true for tiny sizes; loopback only"},
      {"responses",
       {{"202", response("It runs; /api/lab tells how far", "Answer")},
        {"400", response("No such experiment, or it cannot run here", "Error")},
        {"409", response("Another one runs, or a model is served", "Error")}}}};
  paths["/api/lab/stop"]["post"] = {
      {"summary", "Ends the experiment that runs"},
      {"responses", {{"200", response("It will end within seconds", "Answer")}}}};
  Json files = responses();
  files["403"] = response("The server does not listen on a loopback address", "Error");
  paths[std::string(kExplainFilesPath)]["post"] = {
      {"summary", "Which wall do these files show: ridge explain FILE... --json"},
      {"description",
       "One line of JSON, {\"options\": {...}, \"files\": [{\"name\", \"bytes\", "
       "\"modified_s\"}]}, "
       "then the bytes of the files; options as at /api/explain. 256 MiB at most."},
      {"requestBody", {{"content", {{std::string(kExplainFilesType), Json::object()}}}}},
      {"responses", files}};
  paths["/healthz"]["get"] = {{"summary", "Whether the server answers"},
                              {"responses", {{"200", response("It does", "Answer")}}}};
  paths["/api/serving"]["get"] = {{"summary", "What is served, and the machine it is held against"},
                                  {"responses", {{"200", response("The answer", "Answer")}}}};
  paths["/api/live"]["get"] = {
      {"summary", "Steps, requests and KV pages of the engine as they happen"},
      {"parameters",
       {{{"name", "profile"},
         {"in", "query"},
         {"description", "1: with the operators of a step, once a second"},
         {"schema", {{"type", "string"}}}}}},
      {"responses",
       {{"200",
         {{"description", "Server-sent events (docs/page.md)"},
          {"content", {{"text/event-stream", {{"schema", {{"type", "string"}}}}}}}}},
        {"400", response("The option is wrong; the message says why", "Error")},
        {"404", response("No model is served", "Error")},
        {"503", response("The model is being loaded, or four pages listen", "Error")}}}};
  const Json error{
      {"type", "object"},
      {"required", {"error"}},
      {"properties",
       {{"error",
         {{"type", "object"},
          {"required", {"message"}},
          {"properties",
           {{"message", {{"type", "string"}}},
            {"option", {{"type", "string"}, {"description", "The option at fault"}}}}}}}}}};
  const Json any{{"description",
                  "docs/json.md and docs/page.md have the fields. SI units; null is "
                  "unknown."},
                 {"type", {"object", "array"}}};
  return {{"openapi", "3.1.0"},
          {"info",
           {{"title", "Ridge"},
            {"version", RIDGE_VERSION},
            {"description",
             "Options are those of the command line, without dashes; numbers take sweeps "
             "(1,2,4..256) at /api/sweep. GET with a query, or POST with a JSON object."}}},
          {"paths", paths},
          {"components", {{"schemas", {{"Answer", any}, {"Error", error}}}}}};
}

}  // namespace ridge
