// llama-bench: JSON, JSON lines, CSV and the table that it prints.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/dtype.h"
#include "base/error.h"
#include "base/units.h"
#include "diagnose/readers/json_records.h"
#include "diagnose/readers/reader.h"
#include "diagnose/readers/table_text.h"

namespace ridge {
namespace {

using nlohmann::json;
using Q = Quantity;

// One test: n_prompt tokens of a prompt, then n_gen tokens of an answer, after n_depth tokens.
struct LlamaBenchRow {
  std::string model, file, device, cpu, kv;
  double size_bytes = 0;
  std::optional<double> gpu_layers;
  double prompt = 0, generate = 0, depth = 0;
  double tokens_per_s = 0;
  std::string test;  // "tg128 @ d4096"
};

std::string file_base_name(std::string_view path) {
  const size_t slash = path.find_last_of("/\\");
  return std::string(slash == path.npos ? path : path.substr(slash + 1));
}

// "Qwen2.5-7B-Instruct-Q4_K_M.gguf" -> "Qwen2.5-7B-Instruct" and "q4_k_m".
void split_file_name(std::string_view file, std::string& model, std::string& format) {
  std::string name = file_base_name(file);
  if (name.ends_with(".gguf")) name.resize(name.size() - 5);
  // "model-00001-of-00002"
  if (const size_t of = name.rfind("-of-"); of != name.npos && of >= 6) name.resize(of - 6);
  for (size_t dash = name.find_last_of("-."); dash != name.npos && dash > 0;
       dash = name.find_last_of("-.", dash - 1)) {
    try {
      format = format_from_name(name.substr(dash + 1)).name;
      name.resize(dash);
      break;
    } catch (const Error&) {
      if (name.size() - dash > 12) break;  // formats are short and stand at the end
    }
  }
  model = name;
}

std::string llama_test_name(const LlamaBenchRow& row) {
  std::string name;
  if (row.prompt > 0) name += fmt::format("pp{:g}", row.prompt);
  if (row.generate > 0) name += fmt::format("{}tg{:g}", name.empty() ? "" : "+", row.generate);
  if (row.depth > 0) name += fmt::format(" @ d{:g}", row.depth);
  return name;
}

std::optional<LlamaBenchRow> row_of_json(const json& object) {
  if (!object.is_object() || !object.contains("avg_ts") || !object.contains("n_gen")) {
    return std::nullopt;
  }
  LlamaBenchRow row;
  row.file = json_text(object, "model_filename");
  row.model = json_text(object, "model_type");
  row.device = json_text(object, "gpu_info");
  row.cpu = json_text(object, "cpu_info");
  row.kv = json_text(object, "type_k");
  row.size_bytes = json_number(object, "model_size").value_or(0);
  row.gpu_layers = json_number(object, "n_gpu_layers");
  row.prompt = json_number(object, "n_prompt").value_or(0);
  row.generate = json_number(object, "n_gen").value_or(0);
  row.depth = json_number(object, "n_depth").value_or(0);
  row.tokens_per_s = json_number(object, "avg_ts").value_or(0);
  row.test = llama_test_name(row);
  return row;
}

json object_of_fields(const std::vector<std::string>& header,
                      const std::vector<std::string>& fields) {
  json object = json::object();
  for (size_t i = 0; i < std::min(header.size(), fields.size()); ++i) object[header[i]] = fields[i];
  return object;
}

// "pp512", "tg128", "pp512+tg128", "tg128 @ d4096".
void read_test_name(std::string_view test, LlamaBenchRow& row) {
  row.test = std::string(test);
  const auto after = [&](std::string_view mark) {
    const size_t at = test.find(mark);
    if (at == test.npos) return 0.;
    return std::max(0., leading_number(test.substr(at + mark.size())).value_or(0));
  };
  row.prompt = after("pp");
  row.generate = after("tg");
  row.depth = after("@ d");
}

// "4.36 GiB" -> bytes.
double bytes_of_llama_size(std::string_view text) {
  const double number = leading_number(text).value_or(0);
  for (const auto& [unit, bytes] : {std::pair{"TiB", 0x1p40}, {"GiB", 0x1p30}, {"MiB", 0x1p20}}) {
    if (text.find(unit) != text.npos) return number * bytes;
  }
  return 0;
}

void add_llama_row(LlamaBenchRow row, std::vector<LlamaBenchRow>& rows,
                   std::vector<std::string>& notes) {
  if (rows.size() < kMaxRuns) {
    rows.push_back(std::move(row));
  } else if (notes.empty()) {
    notes.push_back(fmt::format("rows after the first {} are not read", kMaxRuns));
  }
}

// The table that llama-bench prints; its columns depend on the options.
std::vector<LlamaBenchRow> rows_of_llama_table(std::string_view text,
                                               std::vector<std::string>& notes) {
  std::vector<LlamaBenchRow> rows;
  std::vector<std::string> header;
  std::string device;
  for_text_lines(text, [&](std::string_view line, size_t) {
    // "  Device 0: NVIDIA GeForce RTX 4090, compute capability 8.9, VMM: yes"
    if (const size_t at = line.find("Device 0: "); at != line.npos && device.empty()) {
      const std::string_view rest = line.substr(at + 10);
      device = std::string(rest.substr(0, std::min(rest.find(','), rest.find(" ("))));
    }
    if (line.find('|') == line.npos) return;
    const std::vector<std::string> cells = split_cells(line);
    if (std::find(cells.begin(), cells.end(), "t/s") != cells.end()) {
      header = cells;
      return;
    }
    if (header.empty() || cells.size() != header.size()) return;
    LlamaBenchRow row;
    row.device = device;
    for (size_t i = 0; i < header.size(); ++i) {
      const std::string& cell = cells[i];
      if (header[i] == "model") row.model = cell;
      if (header[i] == "size") row.size_bytes = bytes_of_llama_size(cell);
      if (header[i] == "ngl") row.gpu_layers = leading_number(cell);
      if (header[i] == "backend" && cell == "CPU") row.gpu_layers = 0;
      if (header[i] == "type_k") row.kv = cell;
      if (header[i] == "test") read_test_name(cell, row);
      if (header[i] == "t/s") row.tokens_per_s = leading_number(cell).value_or(0);
    }
    if (row.tokens_per_s > 0) add_llama_row(std::move(row), rows, notes);
  });
  return rows;
}

std::vector<LlamaBenchRow> read_llama_rows(std::string_view text, std::vector<std::string>& notes) {
  std::vector<LlamaBenchRow> rows;
  if (begins_json(text)) {
    if (!has_text(text, "\"avg_ts\"")) return rows;
    for_json_records(
        text,
        [&](const json& object, size_t) {
          if (auto row = row_of_json(object)) add_llama_row(std::move(*row), rows, notes);
        },
        notes);
    return rows;
  }
  const std::string_view head = text.substr(0, text.find('\n'));
  if (head.find("avg_ts") != head.npos && head.find("n_gen") != head.npos) {
    std::vector<std::string> header;
    for_text_lines(text, [&](std::string_view line, size_t) {
      const std::vector<std::string> fields = split_csv(line);
      if (header.empty()) {
        header = fields;
      } else if (auto row = row_of_json(object_of_fields(header, fields))) {
        add_llama_row(std::move(*row), rows, notes);
      }
    });
    return rows;
  }
  return text.find("t/s") == text.npos ? rows : rows_of_llama_table(text, notes);
}

void describe_llama_setup(const LlamaBenchRow& row, EvidenceFile& file) {
  file.setup.engine = "llama.cpp";
  file.setup.weight_bytes = row.size_bytes;
  std::string model, format;
  split_file_name(row.file.empty() ? row.model : row.file, model, format);
  // "llama 8B Q4_K - Medium": the type tells the format where the file's name does not.
  if (format.empty()) {
    for (const auto& [mark, name] : {std::pair{"Q4_K - Medium", "q4_k_m"},
                                     {"Q5_K - Medium", "q5_k_m"},
                                     {"Q4_K", "q4_k"},
                                     {"Q5_K", "q5_k"},
                                     {"Q6_K", "q6_k"},
                                     {"Q3_K", "q3_k"},
                                     {"Q2_K", "q2_k"},
                                     {"Q8_0", "q8_0"},
                                     {"Q4_0", "q4_0"},
                                     {"Q4_1", "q4_1"},
                                     {"Q5_0", "q5_0"},
                                     {"MXFP4", "mxfp4"},
                                     {"IQ4_XS", "iq4_xs"},
                                     {"IQ4_NL", "iq4_nl"},
                                     {"BF16", "bf16"},
                                     {"F16", "fp16"}}) {
      if (row.model.find(mark) != row.model.npos) {
        format = name;
        break;
      }
    }
  }
  file.setup.model = model;
  file.setup.weights = format;
  try {
    if (!row.kv.empty()) file.setup.kv = format_from_name(row.kv).name;
  } catch (const Error&) {
  }
  const bool on_cpu = row.gpu_layers && *row.gpu_layers == 0;
  file.setup.device = on_cpu ? row.cpu : row.device;
  if (on_cpu && !row.device.empty()) file.setup.offloaded = 1;
  if (row.gpu_layers && *row.gpu_layers > 0 && *row.gpu_layers < 99) {
    file.notes.push_back(
        fmt::format("{:g} layers are on the device; how many the model has is not in the file",
                    *row.gpu_layers));
  }
}

}  // namespace

std::optional<EvidenceFile> read_llama_bench(std::string_view text, const std::string& name) {
  EvidenceFile file;
  file.path = name;
  file.kind = "llama-bench result";
  file.window = "one sequence, measured several times";
  const std::vector<LlamaBenchRow> rows = read_llama_rows(text, file.notes);
  if (rows.empty()) return std::nullopt;
  const LlamaBenchRow *decode = nullptr, *deepest = nullptr, *prompt = nullptr;
  for (const LlamaBenchRow& row : rows) {
    if (!(row.tokens_per_s > 0) || !std::isfinite(row.tokens_per_s)) {
      file.notes.push_back(fmt::format("{}: no speed", row.test));
      continue;
    }
    if (row.generate > 0 && row.prompt == 0) {
      if (decode == nullptr || row.depth < decode->depth) decode = &row;
      if (deepest == nullptr || row.depth > deepest->depth) deepest = &row;
    } else if (row.prompt > 0 && row.generate == 0) {
      if (prompt == nullptr || row.depth < prompt->depth) prompt = &row;
    } else {
      file.notes.push_back(fmt::format("{}: prompt and answer together, {:.4g} tok/s; not used",
                                       row.test, row.tokens_per_s));
    }
  }
  if (decode == nullptr && prompt == nullptr) {
    throw Error("{}: llama-bench rows, but none of a prompt (pp) or of an answer (tg) alone", name);
  }
  describe_llama_setup(decode != nullptr ? *decode : *prompt, file);
  if (decode != nullptr) {
    const double rate = decode->tokens_per_s;
    file.add(Q::tokens_per_s, rate, Trust::window, decode->test);
    file.add(Q::batch, 1, Trust::window, "llama-bench runs one sequence");
    file.add(Q::itl, 1 / rate, Trust::window, "1 / tok/s of " + decode->test);
    file.add(Q::output, decode->generate, Trust::window, decode->test);
    file.add(Q::prompt, std::max(decode->depth, 1.), Trust::window,
             decode->depth > 0 ? "depth of " + decode->test : "llama-bench begins with one token");
    if (decode->size_bytes > 0) {
      file.add(Q::bytes_per_s, decode->size_bytes * rate, Trust::window,
               "model size x tok/s of " + decode->test);
    }
  }
  if (prompt != nullptr) {
    file.add(Q::prompt_tokens_per_s, prompt->tokens_per_s, Trust::window,
             prompt->test + ", a test without decoding");
  }
  if (deepest != decode) {
    file.notes.push_back(
        fmt::format("{}: {:.4g} tok/s, {} of {}", deepest->test, deepest->tokens_per_s,
                    pretty_percent(deepest->tokens_per_s / decode->tokens_per_s), decode->test));
  }
  const bool several = std::any_of(rows.begin(), rows.end(), [&](const LlamaBenchRow& row) {
    return row.file != rows[0].file || row.model != rows[0].model || row.device != rows[0].device ||
           row.gpu_layers != rows[0].gpu_layers;
  });
  if (several) {
    file.notes.push_back(fmt::format("{} rows of several models or settings: {} of {} is used",
                                     rows.size(), decode ? decode->test : prompt->test,
                                     decode ? decode->model : prompt->model));
  }
  return file;
}

}  // namespace ridge
