// Nsight Systems: the SQLite file that `nsys export --type sqlite` and `nsys stats` write.
#include <sqlite3.h>

#include <filesystem>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>

#include "base/error.h"
#include "base/units.h"
#include "diagnose/readers/reader.h"
#include "diagnose/timeline.h"

namespace ridge {
namespace {

// "file:" with the characters that a URI gives a meaning escaped.
std::string sqlite_uri(const std::string& path) {
  std::string uri = "file:";
  for (const char c : path) {
    if (c == '%' || c == '?' || c == '#')
      uri += fmt::format("%{:02x}", static_cast<unsigned char>(c));
    else
      uri += c;
  }
  // Immutable: no lock and no journal, so that a file in a read-only folder can be read.
  return uri + "?mode=ro&immutable=1";
}

class NsightSqliteReader {
 public:
  explicit NsightSqliteReader(const EvidenceInput& input);
  EvidenceFile read();

 private:
  using Statement = std::unique_ptr<sqlite3_stmt, int (*)(sqlite3_stmt*)>;

  Statement prepare(const std::string& sql);
  bool has_table(const std::string& table);
  std::string column(const std::string& table, const char* name, const char* otherwise);
  // Calls visit(statement) for each row; a damaged table becomes a note.
  template <typename Visit>
  void rows(const std::string& table, std::initializer_list<const char*> columns, Visit&& visit);
  std::string string_of(int64_t id);
  uint32_t name_of(int64_t id);

  void check_size();
  void read_kernels();
  void read_copies();
  void read_calls();
  void read_graphs();
  void read_steps();
  void read_device_name();

  std::string unlogged_;  // a copy that the database reads: outlives it
  std::unique_ptr<sqlite3, int (*)(sqlite3*)> database_{nullptr, sqlite3_close};
  uintmax_t bytes_ = 0;  // of the file
  EvidenceFile file_;
  Timeline timeline_;
  std::unordered_map<int64_t, uint32_t> names_;  // id of StringIds -> name of the timeline
};

// The process of a globalTid or globalPid: bits 24 to 47.
uint32_t nsys_process(int64_t global) { return uint32_t((uint64_t(global) >> 24) & 0xFFFFFF); }

NsightSqliteReader::NsightSqliteReader(const EvidenceInput& input) {
  file_.path = input.name;
  file_.kind = "Nsight Systems (SQLite)";
  sqlite3* database = nullptr;
  int status = sqlite3_open_v2(input.sent ? ":memory:" : sqlite_uri(input.name).c_str(), &database,
                               SQLITE_OPEN_READONLY | SQLITE_OPEN_URI, nullptr);
  database_.reset(database);
  if (status == SQLITE_OK && input.sent) {
    bytes_ = input.sent->size();
    const auto size = sqlite3_int64(bytes_);
    // SQLite only reads from a database that it is given as read-only.
    auto* data = reinterpret_cast<unsigned char*>(const_cast<char*>(input.sent->data()));
    // Two bytes of the header say that writes went to a log beside the file, which memory cannot
    // have: said otherwise in a copy, the file is read as it is.
    constexpr size_t kWriteVersion = 18, kReadVersion = 19;
    constexpr unsigned char kLogged = 2, kPlain = 1;
    if (bytes_ > kReadVersion &&
        (data[kWriteVersion] == kLogged || data[kReadVersion] == kLogged)) {
      unlogged_.assign(input.sent->begin(), input.sent->end());
      data = reinterpret_cast<unsigned char*>(unlogged_.data());
      data[kWriteVersion] = data[kReadVersion] = kPlain;
    }
    status = sqlite3_deserialize(database, "main", data, size, size, SQLITE_DESERIALIZE_READONLY);
  } else {
    std::error_code unknown;
    bytes_ = std::filesystem::file_size(input.name, unknown);  // uintmax_t(-1) where unknown
  }
  if (status != SQLITE_OK) throw Error("{}: cannot be opened as an SQLite file", input.name);
  // The schema comes with the file: nothing in it may run.
  sqlite3_db_config(database, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, nullptr);
  sqlite3_db_config(database, SQLITE_DBCONFIG_ENABLE_VIEW, 0, nullptr);
  sqlite3_limit(database, SQLITE_LIMIT_LENGTH, 1 << 20);
}

NsightSqliteReader::Statement NsightSqliteReader::prepare(const std::string& sql) {
  sqlite3_stmt* statement = nullptr;
  if (sqlite3_prepare_v2(database_.get(), sql.c_str(), -1, &statement, nullptr) != SQLITE_OK)
    throw Error("{}: SQLite: {}", file_.path, sqlite3_errmsg(database_.get()));
  return {statement, sqlite3_finalize};
}

// A table with rows of its own: neither a view nor a virtual one.
bool NsightSqliteReader::has_table(const std::string& table) {
  const Statement query =
      prepare("SELECT 1 FROM sqlite_master WHERE type = 'table' AND rootpage > 0 AND name = ?");
  sqlite3_bind_text(query.get(), 1, table.c_str(), -1, SQLITE_TRANSIENT);
  const int status = sqlite3_step(query.get());
  if (status != SQLITE_ROW && status != SQLITE_DONE)
    throw Error("{}: SQLite: {}", file_.path, sqlite3_errmsg(database_.get()));
  return status == SQLITE_ROW;
}

// Columns came and went with the versions: 0 stands for one that this file does not have.
std::string NsightSqliteReader::column(const std::string& table, const char* name,
                                       const char* otherwise) {
  const Statement query = prepare("SELECT 1 FROM pragma_table_info(?) WHERE name = ?");
  sqlite3_bind_text(query.get(), 1, table.c_str(), -1, SQLITE_TRANSIENT);
  sqlite3_bind_text(query.get(), 2, name, -1, SQLITE_TRANSIENT);
  return sqlite3_step(query.get()) == SQLITE_ROW ? fmt::format("\"{}\"", name) : otherwise;
}

template <typename Visit>
void NsightSqliteReader::rows(const std::string& table, std::initializer_list<const char*> columns,
                              Visit&& visit) {
  if (!has_table(table)) return;
  std::string list;
  for (const char* name : columns) {
    if (!list.empty()) list += ", ";
    list += column(table, name, "0");
  }
  const Statement query = prepare(fmt::format("SELECT {} FROM {}", list, table));
  int status;
  while ((status = sqlite3_step(query.get())) == SQLITE_ROW) visit(query.get());
  if (status != SQLITE_DONE)
    file_.notes.push_back(fmt::format("table {}: {}", table, sqlite3_errmsg(database_.get())));
}

std::string NsightSqliteReader::string_of(int64_t id) {
  const Statement query = prepare("SELECT value FROM StringIds WHERE id = ?");
  sqlite3_bind_int64(query.get(), 1, id);
  if (sqlite3_step(query.get()) != SQLITE_ROW) return {};
  const unsigned char* text = sqlite3_column_text(query.get(), 0);
  return text != nullptr ? reinterpret_cast<const char*>(text) : "";
}

uint32_t NsightSqliteReader::name_of(int64_t id) {
  const auto known = names_.find(id);
  if (known != names_.end()) return known->second;
  std::string text = string_of(id);
  if (text.empty()) text = fmt::format("(name {})", id);
  const uint32_t name = timeline_.intern(text);
  names_.emplace(id, name);
  return name;
}

// SQLite reads the part that a truncated file lacks as empty pages.
void NsightSqliteReader::check_size() {
  const Statement query =
      prepare("SELECT page_count * page_size FROM pragma_page_count, pragma_page_size");
  if (sqlite3_step(query.get()) != SQLITE_ROW) return;
  const int64_t said = sqlite3_column_int64(query.get(), 0);
  if (said > 0 && bytes_ < uintmax_t(said))
    file_.notes.push_back(
        fmt::format("the file ends too early: it has {} of {} bytes", bytes_, said));
}

// Nanoseconds of columns 0 and 1. An end before the start gives a negative duration, which the
// timeline counts as impossible.
std::pair<int64_t, int64_t> nsys_start_and_duration(sqlite3_stmt* row) {
  const int64_t start = sqlite3_column_int64(row, 0), end = sqlite3_column_int64(row, 1);
  int64_t duration = 0;
  if (__builtin_sub_overflow(end, start, &duration)) duration = -1;
  return {start, duration};
}

void NsightSqliteReader::read_kernels() {
  rows("CUPTI_ACTIVITY_KIND_KERNEL",
       {"start", "end", "deviceId", "globalPid", "correlationId", "demangledName", "graphNodeId"},
       [&](sqlite3_stmt* row) {
         const auto [start, duration] = nsys_start_and_duration(row);
         const bool in_graph = sqlite3_column_int64(row, 6) != 0;
         timeline_.add_kernel(sqlite3_column_int64(row, 2),
                              nsys_process(sqlite3_column_int64(row, 3)), start, duration,
                              name_of(sqlite3_column_int64(row, 5)),
                              uint32_t(sqlite3_column_int64(row, 4)), in_graph);
       });
}

void NsightSqliteReader::read_copies() {
  const auto add = [&](sqlite3_stmt* row, const char* name, Timeline::Copy direction) {
    const auto [start, duration] = nsys_start_and_duration(row);
    timeline_.add_copy(sqlite3_column_int64(row, 2), nsys_process(sqlite3_column_int64(row, 3)),
                       start, duration, timeline_.intern(name, KernelFamily::copy),
                       uint32_t(sqlite3_column_int64(row, 4)), direction,
                       sqlite3_column_double(row, 5));
  };
  rows("CUPTI_ACTIVITY_KIND_MEMCPY",
       {"start", "end", "deviceId", "globalPid", "correlationId", "bytes", "copyKind"},
       [&](sqlite3_stmt* row) {
         switch (sqlite3_column_int64(row, 6)) {  // CUpti_ActivityMemcpyKind
           case 1:
             return add(row, "[CUDA memcpy Host-to-Device]", Timeline::Copy::host_to_device);
           case 2:
             return add(row, "[CUDA memcpy Device-to-Host]", Timeline::Copy::device_to_host);
           default:
             return add(row, "[CUDA memcpy]", Timeline::Copy::other);
         }
       });
  rows("CUPTI_ACTIVITY_KIND_MEMSET",
       {"start", "end", "deviceId", "globalPid", "correlationId", "bytes"},
       [&](sqlite3_stmt* row) { add(row, "[CUDA memset]", Timeline::Copy::other); });
}

void NsightSqliteReader::read_calls() {
  std::unordered_map<int64_t, std::string> functions;
  rows("CUPTI_ACTIVITY_KIND_RUNTIME", {"start", "end", "globalTid", "correlationId", "nameId"},
       [&](sqlite3_stmt* row) {
         const auto [start, duration] = nsys_start_and_duration(row);
         const int64_t id = sqlite3_column_int64(row, 4);
         auto function = functions.find(id);
         if (function == functions.end()) function = functions.emplace(id, string_of(id)).first;
         timeline_.add_call(nsys_process(sqlite3_column_int64(row, 2)), start, duration,
                            host_call_kind(function->second, duration),
                            uint32_t(sqlite3_column_int64(row, 3)));
       });
}

// Without --cuda-graph-trace=node, a graph is one row.
void NsightSqliteReader::read_graphs() {
  size_t graphs = 0;
  rows("CUPTI_ACTIVITY_KIND_GRAPH_TRACE",
       {"start", "end", "deviceId", "globalPid", "correlationId"}, [&](sqlite3_stmt* row) {
         const auto [start, duration] = nsys_start_and_duration(row);
         timeline_.add_kernel(sqlite3_column_int64(row, 2),
                              nsys_process(sqlite3_column_int64(row, 3)), start, duration,
                              timeline_.intern("(CUDA graph)", KernelFamily::other),
                              uint32_t(sqlite3_column_int64(row, 4)), true);
         ++graphs;
       });
  if (graphs > 0)
    file_.notes.push_back(
        fmt::format("{} CUDA graphs are one row each: profile with "
                    "--cuda-graph-trace=node to see their kernels",
                    graphs));
}

void NsightSqliteReader::read_steps() {
  std::unordered_map<int64_t, StepAnnotation> known;
  std::optional<uint32_t> process;  // every rank marks the same steps: one of them counts
  rows("NVTX_EVENTS", {"start", "end", "globalTid", "text", "textId"}, [&](sqlite3_stmt* row) {
    StepAnnotation step;
    const int64_t id = sqlite3_column_int64(row, 4);
    if (id != 0) {
      auto place = known.find(id);
      if (place == known.end())
        place = known.emplace(id, parse_step_annotation(string_of(id))).first;
      step = place->second;
    } else if (const unsigned char* text = sqlite3_column_text(row, 3)) {
      step = parse_step_annotation(reinterpret_cast<const char*>(text));
    }
    if (step.source == StepAnnotation::Source::none) return;
    const uint32_t owner = nsys_process(sqlite3_column_int64(row, 2));
    if (!process) process = owner;
    const auto [start, duration] = nsys_start_and_duration(row);
    if (*process == owner) timeline_.add_step(step, start, duration);
  });
}

void NsightSqliteReader::read_device_name() {
  rows("TARGET_INFO_GPU", {"name"}, [&](sqlite3_stmt* row) {
    const unsigned char* text = sqlite3_column_text(row, 0);
    if (text == nullptr) return;
    const std::string name = reinterpret_cast<const char*>(text);
    if (file_.setup.device.empty()) file_.setup.device = name;
    if (file_.setup.device != name)
      file_.notes.push_back("the host has other devices too: " + name);
  });
}

EvidenceFile NsightSqliteReader::read() {
  if (!has_table("StringIds"))
    throw Error("{}: an SQLite file, but not of Nsight Systems", file_.path);
  check_size();
  read_device_name();
  read_kernels();
  read_copies();
  read_calls();
  read_graphs();
  read_steps();
  if (timeline_.impossible() > 0)
    file_.notes.push_back(fmt::format("{} rows have an impossible time", timeline_.impossible()));
  if (timeline_.left_out() > 0)
    file_.notes.push_back(
        fmt::format("{} rows beyond the limit were left out", timeline_.left_out()));
  if (timeline_.kernels() == 0) {
    if (!file_.notes.empty())
      throw Error("{}: no kernel could be read: {}", file_.path, file_.notes.front());
    file_.notes.push_back("no kernel is in this profile: record it with --trace=cuda");
    return std::move(file_);
  }
  if (!timeline_.has_calls())
    file_.notes.push_back(
        "the host's calls are not in this file: the causes of gaps are not known");
  file_.profile = timeline_.profile("Nsight Systems");
  file_.window =
      fmt::format("{} from the first to the last kernel", pretty_time(file_.profile->wall_s));
  return std::move(file_);
}

}  // namespace

bool is_sqlite(std::string_view head) { return head.substr(0, 15) == "SQLite format 3"; }

EvidenceFile read_nsight_systems_sqlite(const EvidenceInput& input) {
  return NsightSqliteReader(input).read();
}

}  // namespace ridge
