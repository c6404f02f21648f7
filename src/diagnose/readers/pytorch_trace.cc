#include "diagnose/readers/pytorch_trace.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <memory>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/json.h"
#include "base/units.h"
#include "diagnose/readers/json_cursor.h"
#include "diagnose/readers/reader.h"
#include "diagnose/timeline.h"

namespace ridge {
namespace {

enum class EventKind : uint8_t { other, kernel, copy, call, annotation, cpu_op, python };

// Traces of 2021 have "Kernel", "Memcpy", "Runtime", "Operator".
EventKind event_kind(std::string_view category) {
  const auto ends = [&](std::string_view with) {
    return category.size() >= with.size() && category.substr(category.size() - with.size()) == with;
  };
  if (category == "kernel" || category == "Kernel") return EventKind::kernel;
  if (category == "python_function") return EventKind::python;
  if (category == "cpu_op" || category == "Operator") return EventKind::cpu_op;
  if (category == "user_annotation") return EventKind::annotation;
  if (ends("_runtime") || ends("_driver") || category == "Runtime") return EventKind::call;
  if (category == "gpu_memcpy" || category == "gpu_memset" || category == "Memcpy" ||
      category == "Memset")
    return EventKind::copy;
  return EventKind::other;
}

// Nanoseconds of a JSON token in microseconds: 12.5, 1.2e9 or "12". Doubles would lose a quarter of
// a microsecond of the times since 1970.
std::optional<int64_t> trace_nanoseconds(std::string_view token) {
  while (!token.empty() && (token.back() == ' ' || token.back() == '\n' || token.back() == '\r' ||
                            token.back() == '\t' || token.back() == '"'))
    token.remove_suffix(1);
  if (!token.empty() && token.front() == '"') token.remove_prefix(1);
  const char *at = token.data(), *end = at + token.size();
  int64_t whole = 0;
  const auto [point, failed] = std::from_chars(at, end, whole);
  if (failed == std::errc() && std::abs(whole) < 4'000'000'000'000'000) {
    const bool negative = token.front() == '-';
    int64_t fraction = 0, unit = 100;
    const char* digit = point;
    if (digit != end && *digit == '.')
      for (++digit; digit != end && *digit >= '0' && *digit <= '9'; ++digit, unit /= 10)
        fraction += unit * (*digit - '0');
    if (digit == end) return 1000 * whole + (negative ? -fraction : fraction);
  }
  double value = 0;
  const auto [rest, error] = std::from_chars(at, end, value);
  if (error != std::errc() || rest != end || !(std::abs(value) < 4e15)) return {};
  return int64_t(1000 * value);
}

struct TraceActivity {
  EventKind kind = EventKind::other;
  std::string_view name;
  int64_t start = 0, duration = -1;  // nanoseconds
  int64_t device = -1;
  uint32_t correlation = 0;
  double bytes = 0;
};

// A number as it is written; `otherwise` for anything else.
template <typename T>
T number_or(std::string_view token, T otherwise) {
  T value = otherwise;
  const auto [rest, error] = std::from_chars(token.data(), token.data() + token.size(), value);
  return error == std::errc() && rest == token.data() + token.size() ? value : otherwise;
}

// What a string says; nullopt for other values. Throws Error where it is no valid JSON.
std::optional<std::string_view> text_of(std::string_view token, std::string& storage) {
  if (token.size() < 2 || token.front() != '"') return {};
  const std::string_view inner = token.substr(1, token.size() - 2);
  const auto is_plain = [](char c) { return c >= ' ' && c <= '~' && c != '\\'; };
  if (std::all_of(inner.begin(), inner.end(), is_plain)) return inner;
  storage = parse_json(token, "a string").get<std::string>();
  return storage;
}

// The fields of an event that are read, as they are written.
struct EventFields {
  std::string_view category, name, start, duration, arguments, process;

  void add(std::string_view key, std::string_view value) {
    for (const auto& [known, field] : {std::pair(R"("cat")", &category),
                                       {R"("name")", &name},
                                       {R"("ts")", &start},
                                       {R"("dur")", &duration},
                                       {R"("args")", &arguments},
                                       {R"("pid")", &process}}) {
      if (key == known) *field = value;
    }
  }
};

class PyTorchTraceReader {
 public:
  explicit PyTorchTraceReader(std::string name) { file_.path = std::move(name); }

  void read(JsonStream& stream);
  EvidenceFile finish();

 private:
  void read_events(JsonStream& stream);
  void read_event(std::string_view text, uint64_t at);
  // Throws Error where a string that is read is none.
  void read_fields(const EventFields& fields);
  void add_activity(const TraceActivity& activity);
  void read_property(std::string_view key, std::string_view value);
  void read_device(std::string_view name);
  void recognise_engine(std::string_view operation);
  void note_end(uint64_t at);

  EvidenceFile file_;
  Timeline timeline_;
  size_t events_ = 0, bad_ = 0, too_long_ = 0;
  uint64_t first_bad_ = 0, first_too_long_ = 0;
  bool with_stack_ = false;
};

void PyTorchTraceReader::note_end(uint64_t at) {
  file_.notes.push_back(fmt::format(
      "the trace ends too early, at byte {} of its text; what is before it was read", at));
}

void PyTorchTraceReader::read(JsonStream& stream) {
  if (stream.peek() == '[') return read_events(stream);
  if (stream.peek() != '{') throw Error("{}: not a JSON object: no trace", file_.path);
  stream.skip();
  for (std::string_view value;;) {
    const char next = stream.peek();
    if (next == '}') return;
    if (next == 0) return note_end(stream.position());
    if (next != '"') {
      stream.skip();
      continue;
    }
    if (stream.take(value) == JsonStream::Taken::ended) return note_end(stream.position());
    const std::string key(value.substr(1, std::min<size_t>(value.size() - 2, 100)));
    if (stream.peek() != ':') continue;
    stream.skip();
    if (key == "traceEvents" && stream.peek() == '[') {
      read_events(stream);
      continue;
    }
    const JsonStream::Taken taken = stream.take(value);
    if (taken == JsonStream::Taken::ended) return note_end(stream.position());
    if (taken == JsonStream::Taken::value) read_property(key, value);
  }
}

void PyTorchTraceReader::read_events(JsonStream& stream) {
  stream.skip();
  for (std::string_view text;;) {
    const char next = stream.peek();
    if (next == 0) return note_end(stream.position());
    if (next == ']' || next == ',') stream.skip();
    if (next == ']') return;
    if (next == ',') continue;
    const uint64_t at = stream.position();
    switch (stream.take(text)) {
      case JsonStream::Taken::value:
        read_event(text, at);
        break;
      case JsonStream::Taken::too_long:
        if (too_long_++ == 0) first_too_long_ = at;
        break;
      case JsonStream::Taken::ended:
        return note_end(at);
    }
  }
}

void PyTorchTraceReader::read_event(std::string_view text, uint64_t at) {
  EventFields fields;
  JsonCursor cursor(text);
  bool valid = cursor.read_object(
      [&](std::string_view key, std::string_view value) { fields.add(key, value); });
  try {
    if (valid) read_fields(fields);
  } catch (const Error&) {
    valid = false;
  }
  if (valid) {
    ++events_;
  } else if (bad_++ == 0) {
    first_bad_ = at;
  }
}

void PyTorchTraceReader::read_fields(const EventFields& fields) {
  std::string category_storage, name_storage;
  const std::optional<std::string_view> category = text_of(fields.category, category_storage);
  if (!category) return;
  TraceActivity activity;
  activity.kind = event_kind(*category);
  if (activity.kind == EventKind::python) with_stack_ = true;
  if (activity.kind == EventKind::other || activity.kind == EventKind::python) return;
  if (activity.kind == EventKind::cpu_op && !file_.setup.engine.empty()) return;
  activity.name = text_of(fields.name, name_storage).value_or("(no name)");
  if (activity.kind == EventKind::cpu_op) return recognise_engine(activity.name);
  const std::optional<int64_t> start = trace_nanoseconds(fields.start),
                               duration = trace_nanoseconds(fields.duration);
  activity.start = start.value_or(0);
  if (start && duration) activity.duration = *duration;  // else it stays negative: impossible
  if (activity.kind != EventKind::annotation) {
    JsonCursor(fields.arguments).read_object([&](std::string_view key, std::string_view value) {
      if (key == R"("device")") activity.device = number_or<int64_t>(value, activity.device);
      if (key == R"("correlation")") activity.correlation = uint32_t(number_or<int64_t>(value, 0));
      if (key == R"("bytes")") activity.bytes = number_or<double>(value, 0);
    });
  }
  // Older traces have the device as the process.
  if (activity.device < 0) activity.device = number_or<int64_t>(fields.process, 0);
  add_activity(activity);
}

void PyTorchTraceReader::add_activity(const TraceActivity& activity) {
  const auto [kind, name, start, duration, device, correlation, bytes] = activity;
  if (kind == EventKind::annotation) {
    timeline_.add_step(parse_step_annotation(name), start, duration);
  } else if (kind == EventKind::call) {
    timeline_.add_call(0, start, duration, host_call_kind(name, duration), correlation);
  } else if (kind == EventKind::kernel) {
    timeline_.add_kernel(device, 0, start, duration, timeline_.intern(name), correlation);
  } else {
    const Timeline::Copy direction =
        name.find("HtoD") != name.npos ? Timeline::Copy::host_to_device : Timeline::Copy::other;
    timeline_.add_copy(device, 0, start, duration, timeline_.intern(name, KernelFamily::copy),
                       correlation, direction, bytes);
  }
}

void PyTorchTraceReader::recognise_engine(std::string_view operation) {
  const auto begins = [&](std::string_view with) {
    return operation.substr(0, with.size()) == with;
  };
  if (begins("vllm::")) file_.setup.engine = "vllm";
  if (begins("sglang::") || begins("sgl_kernel::")) file_.setup.engine = "sglang";
  if (begins("trtllm::")) file_.setup.engine = "trtllm";
}

void PyTorchTraceReader::read_property(std::string_view key, std::string_view value) {
  if (key == "with_stack") with_stack_ = with_stack_ || number_or<int64_t>(value, 0) != 0;
  if (key != "deviceProperties" && key != "distributedInfo") return;
  try {
    const nlohmann::json property = parse_json(value, key);
    if (key == "deviceProperties" && property.is_array()) {
      for (const nlohmann::json& device : property) {
        if (device.is_object()) read_device(string_field(device, "name", key).value_or(""));
      }
    } else if (key == "distributedInfo" && property.is_object()) {
      const auto world = integer_field(property, "world_size", key, 1, 1'000'000);
      if (world) file_.setup.devices = int(*world);
    }
  } catch (const Error&) {  // the events are what counts
  }
}

void PyTorchTraceReader::read_device(std::string_view name) {
  if (name.empty()) return;
  if (file_.setup.device.empty()) file_.setup.device = name;
  if (file_.setup.device != name && file_.notes.size() < 16) {
    file_.notes.push_back(fmt::format("the host has other devices too: {}", name));
  }
}

EvidenceFile PyTorchTraceReader::finish() {
  const auto note = [&](std::string text) { file_.notes.push_back(std::move(text)); };
  file_.kind = "PyTorch trace";
  if (bad_ > 0)
    note(fmt::format("{} events are no valid JSON, the first at byte {}", bad_, first_bad_));
  if (too_long_ > 0)
    note(fmt::format("{} events are too long to read, the first at byte {}", too_long_,
                     first_too_long_));
  if (events_ == 0) throw Error("{}: a trace without any event", file_.path);
  if (timeline_.impossible() > 0)
    note(fmt::format("{} events have no time or an impossible one", timeline_.impossible()));
  if (timeline_.left_out() > 0)
    note(fmt::format("{} events beyond the limit were left out", timeline_.left_out()));
  if (timeline_.kernels() == 0) {
    note("no GPU kernel is in this trace: record it with the profiler's CUDA activity");
    return std::move(file_);
  }
  if (!timeline_.has_calls())
    note("the host's calls are not in this trace: the causes of gaps are not known");
  KernelProfile profile = timeline_.profile("PyTorch trace");
  profile.with_stack = with_stack_;
  file_.window = fmt::format("{} from the first to the last kernel", pretty_time(profile.wall_s));
  file_.profile = std::move(profile);
  return std::move(file_);
}

}  // namespace

EvidenceFile read_pytorch_trace_events(JsonStream& stream, const std::string& name) {
  const auto reader = std::make_unique<PyTorchTraceReader>(name);
  reader->read(stream);
  return reader->finish();
}

bool is_pytorch_trace(std::string_view head) {
  const size_t first = head.find_first_not_of(" \t\r\n");
  if (first == head.npos || (head[first] != '{' && head[first] != '[')) return false;
  const auto has = [&](std::string_view text) { return head.find(text) != head.npos; };
  if (head[first] == '[') return has("\"ph\"") && has("\"ts\"");
  // Whoever adds fields to a trace may put pages of them in front.
  return has("\"traceEvents\"") || has("\"deviceProperties\"") || has("\"torch_profiler");
}

EvidenceFile read_pytorch_trace(const EvidenceInput& input, UnpackBudget& budget) {
  UnpackedReader reader(input, budget);
  JsonStream stream([&](char* into, size_t size) { return reader.read(into, size); });
  EvidenceFile file = read_pytorch_trace_events(stream, input.name);
  if (reader.damaged()) {
    file.notes.push_back(
        fmt::format("damaged gzip data after byte {} of the unpacked text", reader.position()));
  }
  return file;
}

EvidenceFile read_pytorch_trace(const EvidenceInput& input) {
  UnpackBudget unlimited;
  return read_pytorch_trace(input, unlimited);
}

}  // namespace ridge
