#include "page/report.h"

#include <algorithm>

#include "base/error.h"
#include "page/page.h"
#include "predict/request.h"

namespace ridge {
namespace {

std::string page_text(const char* path) { return unzip(find_page_file(path)->gzip); }

// Which options a view sends: web/src/views.json, as web/src/api.ts reads it.
ApiOptions options_for(const nlohmann::json& view, const ApiOptions& config) {
  std::vector<std::string> names;
  if (view.contains("only")) {
    names = view["only"].get<std::vector<std::string>>();
  } else {
    const auto drop = view.value("drop", std::vector<std::string>{});
    for (const RequestOption& option : request_options()) {
      if (std::find(drop.begin(), drop.end(), option.name) == drop.end()) {
        names.emplace_back(option.name);
      }
    }
    for (const std::string& name : view.value("also", std::vector<std::string>{})) {
      names.push_back(name);
    }
  }
  const ApiOptions set = view.value("set", ApiOptions{});
  const ApiOptions rename = view.value("rename", ApiOptions{});
  ApiOptions options;
  for (const std::string& name : names) {
    const auto fixed = set.find(name), given = config.find(name);
    if (fixed == set.end() && given == config.end()) continue;
    const auto other = rename.find(name);
    options[other == rename.end() ? name : other->second] =
        fixed == set.end() ? given->second : fixed->second;
  }
  return options;
}

Json answer_or_error(const std::string& path, const ApiOptions& options) {
  const ApiEndpoint* endpoint = find_api_endpoint(path);
  if (!endpoint) throw Error("views.json asks for {}, which the API does not have", path);
  try {
    return answer(*endpoint, options);
  } catch (const OptionError& error) {
    if (options.contains(error.option())) throw;  // what was asked for is wrong
    return {{"error", {{"message", error.what()}}}};
  } catch (const Error& error) {  // a panel that cannot be drawn says why
    return {{"error", {{"message", error.what()}}}};
  }
}

void replace(std::string& text, std::string_view from, std::string_view to) {
  const size_t at = text.find(from);
  if (at == std::string::npos) throw Error("the page's index.html has no {}", from);
  text.replace(at, from.size(), to);
}

// Inside <script> nothing may look like its end.
std::string inside_script(std::string text) {
  for (size_t at = 0; (at = text.find("</", at)) != std::string::npos; at += 3) {
    text.replace(at, 2, "<\\/");
  }
  return text;
}

}  // namespace

std::string report_html(const ApiOptions& config, const std::string& made,
                        const std::optional<Json>& explanation, const std::optional<Json>& lab) {
  const nlohmann::json views = parse_json(page_text("views.json"), "views.json");
  // What the headline shows must be there; this throws where it cannot be.
  answer(*find_api_endpoint("/api/predict"), options_for(views.at("predict"), config));

  Json frozen{{"config", config}, {"made", made}, {"views", Json::object()}};
  for (const auto& [name, view] : views.items()) {
    if (name == "explain" && explanation) {
      frozen["views"][name] = *explanation;
      continue;
    }
    frozen["views"][name] = answer_or_error(view.at("path"), options_for(view, config));
  }
  if (lab) frozen["views"]["lab"] = *lab;
  const std::string data = frozen.dump(-1, ' ', false, Json::error_handler_t::replace);

  std::string html = page_text("index.html");
  replace(html, "<meta name=\"color-scheme\"",
          "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; script-src "
          "'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:\">\n"
          "<meta name=\"color-scheme\"");
  replace(html, "<link rel=\"icon\" href=\"/icon.svg\">\n", "");
  replace(html, "<link rel=\"stylesheet\" href=\"/app.css\">",
          "<style>" + page_text("app.css") + "</style>");
  replace(html, "<script type=\"module\" src=\"/app.js\"></script>\n", "");
  replace(html, "</body>",
          "<script type=\"application/json\" id=\"frozen\">" + inside_script(data) +
              "</script>\n<script>" + inside_script(page_text("report.js")) + "</script></body>");
  return html;
}

}  // namespace ridge
