// Nsight Systems: the SQLite file that `nsys export --type sqlite` and `nsys stats` write.
#include <sqlite3.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <filesystem>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "base/units.h"
#include "base/work_limit.h"
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

// SQLite counts the instructions of its virtual machine, and calls back each time that it has
// executed this number.
constexpr int kInstructionsBetweenCalls = 1000;
// Copying this number of bytes takes about as long as an instruction, and counts as one.
constexpr int kTextBytesPerInstruction = 16;

WorkLimit sqlite_work_limit(const std::string& name, uint64_t bytes) {
  const auto per_mebibyte = std::chrono::milliseconds(bytes >> 10);  // a second
  return WorkLimit(name + ": SQLite", kSqliteInstructions + kSqliteInstructionsPerByte * bytes,
                   std::chrono::seconds(10) + per_mebibyte);
}

// Permits statements that read columns, and the pragmas that describe tables. A function, a
// recursive query or a write in a file's schema is refused where it would be compiled.
int permit_reads(void*, int action, const char*, const char*, const char*, const char*) {
  const bool reads = action == SQLITE_SELECT || action == SQLITE_READ || action == SQLITE_PRAGMA;
  return reads ? SQLITE_OK : SQLITE_DENY;
}

// The table StringIds, read once: its `id` need not have an index.
class NsightStrings {
 public:
  static constexpr uint32_t kNoName = UINT32_MAX;
  struct Entry {
    int64_t id;
    size_t begin;  // in texts_
    uint32_t size;
    uint32_t name = kNoName;  // of the timeline
  };

  void add(int64_t id, std::string_view text) {
    entries_.push_back({id, texts_.size(), uint32_t(text.size())});
    texts_ += text;
  }
  // After the last add(). Of equal ids the first counts.
  void sort() {
    std::stable_sort(entries_.begin(), entries_.end(),
                     [](const Entry& a, const Entry& b) { return a.id < b.id; });
  }
  Entry* find(int64_t id) {
    const auto place =
        std::lower_bound(entries_.begin(), entries_.end(), id,
                         [](const Entry& e, int64_t wanted) { return e.id < wanted; });
    return place == entries_.end() || place->id != id ? nullptr : &*place;
  }
  std::string_view text(const Entry& entry) const {
    return std::string_view(texts_).substr(entry.begin, entry.size);
  }
  // Of functions and steps, which many rows may name: they are short.
  std::string_view short_text(int64_t id) {
    constexpr size_t kLongest = 512;
    const Entry* entry = find(id);
    return entry == nullptr ? "" : text(*entry).substr(0, kLongest);
  }

 private:
  std::vector<Entry> entries_;
  std::string texts_;
};

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
  // Throws Error where the statement ended because the work limit is spent.
  void check_limit() const;
  std::string_view text_column(sqlite3_stmt* row, int column);
  uint32_t name_of(int64_t id);

  void check_size();
  void read_strings();
  void read_kernels();
  void read_copies();
  void read_calls();
  void read_graphs();
  void read_steps();
  void read_device_name();

  std::string unlogged_;  // a copy that the database reads: outlives it
  std::unique_ptr<sqlite3, int (*)(sqlite3*)> database_{nullptr, sqlite3_close};
  uintmax_t bytes_ = 0;  // of the file
  std::optional<WorkLimit> limit_;
  std::exception_ptr beyond_;  // what limit_ threw inside SQLite
  EvidenceFile file_;
  Timeline timeline_;
  NsightStrings strings_;
};

// The process of a globalTid or globalPid: bits 24 to 47.
uint32_t nsys_process(int64_t global) { return uint32_t((uint64_t(global) >> 24) & 0xFFFFFF); }

NsightSqliteReader::NsightSqliteReader(const EvidenceInput& input) {
  file_.path = input.name;
  file_.kind = "Nsight Systems (SQLite)";
  if (!input.sent) bytes_ = plain_file_size(input.name);
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
  }
  if (status != SQLITE_OK) throw Error("{}: cannot be opened as an SQLite file", input.name);
  // The schema comes with the file: nothing in it may run.
  sqlite3_db_config(database, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, nullptr);
  sqlite3_db_config(database, SQLITE_DBCONFIG_ENABLE_VIEW, 0, nullptr);
  sqlite3_db_config(database, SQLITE_DBCONFIG_ENABLE_TRIGGER, 0, nullptr);
  sqlite3_db_config(database, SQLITE_DBCONFIG_DEFENSIVE, 1, nullptr);
  sqlite3_set_authorizer(database, permit_reads, nullptr);
  sqlite3_limit(database, SQLITE_LIMIT_LENGTH, 1 << 20);
  // SQLite compares each column of a definition with all before it. nsys has about 30.
  sqlite3_limit(database, SQLITE_LIMIT_COLUMN, 256);
  // A page that several pages name as their child is read once for each of them, so that a small
  // file can have rows without end.
  limit_ = sqlite_work_limit(input.name, bytes_);
  const auto spend = [](void* self) {
    auto& reader = *static_cast<NsightSqliteReader*>(self);
    try {
      reader.limit_->spend(kInstructionsBetweenCalls);
      return 0;
    } catch (...) {  // must not pass through SQLite's frames
      reader.beyond_ = std::current_exception();
      return 1;
    }
  };
  sqlite3_progress_handler(database, kInstructionsBetweenCalls, spend, this);
}

void NsightSqliteReader::check_limit() const {
  if (beyond_) std::rethrow_exception(beyond_);
}

NsightSqliteReader::Statement NsightSqliteReader::prepare(const std::string& sql) {
  sqlite3_stmt* statement = nullptr;
  if (sqlite3_prepare_v2(database_.get(), sql.c_str(), -1, &statement, nullptr) != SQLITE_OK) {
    check_limit();
    throw Error("{}: SQLite: {}", file_.path, sqlite3_errmsg(database_.get()));
  }
  return {statement, sqlite3_finalize};
}

// A table with rows of its own: neither a view nor a virtual one.
bool NsightSqliteReader::has_table(const std::string& table) {
  const Statement query =
      prepare("SELECT 1 FROM sqlite_master WHERE type = 'table' AND rootpage > 0 AND name = ?");
  sqlite3_bind_text(query.get(), 1, table.c_str(), -1, SQLITE_TRANSIENT);
  const int status = sqlite3_step(query.get());
  check_limit();
  if (status != SQLITE_ROW && status != SQLITE_DONE)
    throw Error("{}: SQLite: {}", file_.path, sqlite3_errmsg(database_.get()));
  return status == SQLITE_ROW;
}

// Columns came and went with the versions: 0 stands for one that this file does not have. The
// pragma leaves out generated columns, whose expressions are the file's own.
std::string NsightSqliteReader::column(const std::string& table, const char* name,
                                       const char* otherwise) {
  const Statement query = prepare(fmt::format("PRAGMA table_info({})", table));
  while (sqlite3_step(query.get()) == SQLITE_ROW) {
    const unsigned char* found = sqlite3_column_text(query.get(), 1);
    if (found != nullptr && std::string_view(reinterpret_cast<const char*>(found)) == name)
      return fmt::format("\"{}\"", name);
  }
  return otherwise;
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
  check_limit();
  if (status != SQLITE_DONE)
    file_.notes.push_back(fmt::format("table {}: {}", table, sqlite3_errmsg(database_.get())));
}

// Rows may share the pages of a long text: it is paid for each time.
std::string_view NsightSqliteReader::text_column(sqlite3_stmt* row, int column) {
  const unsigned char* text = sqlite3_column_text(row, column);
  if (text == nullptr) return {};
  limit_->spend(uint64_t(sqlite3_column_bytes(row, column)) / kTextBytesPerInstruction);
  return reinterpret_cast<const char*>(text);
}

void NsightSqliteReader::read_strings() {
  rows("StringIds", {"id", "value"},
       [&](sqlite3_stmt* row) { strings_.add(sqlite3_column_int64(row, 0), text_column(row, 1)); });
  strings_.sort();
}

uint32_t NsightSqliteReader::name_of(int64_t id) {
  NsightStrings::Entry* entry = strings_.find(id);
  if (entry == nullptr || entry->size == 0) return timeline_.intern(fmt::format("(name {})", id));
  if (entry->name == NsightStrings::kNoName) entry->name = timeline_.intern(strings_.text(*entry));
  return entry->name;
}

// SQLite reads the part that a truncated file lacks as empty pages.
void NsightSqliteReader::check_size() {
  int64_t said = 1;
  for (const char* factor : {"PRAGMA page_count", "PRAGMA page_size"}) {
    const Statement query = prepare(factor);
    if (sqlite3_step(query.get()) != SQLITE_ROW) return;
    said *= sqlite3_column_int64(query.get(), 0);
  }
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
  rows("CUPTI_ACTIVITY_KIND_RUNTIME", {"start", "end", "globalTid", "correlationId", "nameId"},
       [&](sqlite3_stmt* row) {
         const auto [start, duration] = nsys_start_and_duration(row);
         const std::string_view function = strings_.short_text(sqlite3_column_int64(row, 4));
         timeline_.add_call(nsys_process(sqlite3_column_int64(row, 2)), start, duration,
                            host_call_kind(function, duration),
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
  std::optional<uint32_t> process;  // every rank marks the same steps: one of them counts
  rows("NVTX_EVENTS", {"start", "end", "globalTid", "text", "textId"}, [&](sqlite3_stmt* row) {
    const int64_t id = sqlite3_column_int64(row, 4);
    const StepAnnotation step =
        parse_step_annotation(id != 0 ? strings_.short_text(id) : text_column(row, 3));
    if (step.source == StepAnnotation::Source::none) return;
    const uint32_t owner = nsys_process(sqlite3_column_int64(row, 2));
    if (!process) process = owner;
    const auto [start, duration] = nsys_start_and_duration(row);
    if (*process == owner) timeline_.add_step(step, start, duration);
  });
}

void NsightSqliteReader::read_device_name() {
  rows("TARGET_INFO_GPU", {"name"}, [&](sqlite3_stmt* row) {
    const std::string name(text_column(row, 0));
    if (name.empty()) return;
    if (file_.setup.device.empty()) file_.setup.device = name;
    if (file_.setup.device != name && file_.notes.size() < 16)
      file_.notes.push_back("the host has other devices too: " + name);
  });
}

EvidenceFile NsightSqliteReader::read() {
  if (!has_table("StringIds"))
    throw Error("{}: an SQLite file, but not of Nsight Systems", file_.path);
  check_size();
  read_strings();
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
