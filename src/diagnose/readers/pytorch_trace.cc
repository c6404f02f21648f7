#include "diagnose/readers/pytorch_trace.h"

#include <simdjson.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <memory>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/units.h"
#include "diagnose/readers/reader.h"
#include "diagnose/timeline.h"

namespace ridge {
namespace {

namespace ondemand = simdjson::ondemand;

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

bool key_is(const char* raw, std::string_view key) {
  return std::strncmp(raw, key.data(), key.size()) == 0 && raw[key.size()] == '"';
}

class PyTorchTraceReader {
 public:
  explicit PyTorchTraceReader(std::string name) { file_.path = std::move(name); }

  void read(JsonStream& stream);
  EvidenceFile finish();

 private:
  void read_events(JsonStream& stream);
  void read_event(std::string_view text, uint64_t at);
  // False for any error. After one that is more than a missing field or another type, simdjson's
  // objects must not be used again: broken_.
  bool holds(simdjson::error_code error);
  template <typename T>
  bool holds(ondemand::value value, T& to);
  std::optional<ondemand::value> find(ondemand::object& object, std::string_view key);
  std::optional<std::string_view> find_text(ondemand::object& object, std::string_view key);
  std::optional<int64_t> find_time(ondemand::object& object, std::string_view key);
  void read_fields(ondemand::object& event);
  void read_arguments(ondemand::object& event, TraceActivity& activity);
  void add_activity(const TraceActivity& activity);
  void read_property(std::string_view key, std::string_view value);
  void read_devices(ondemand::document& document);
  void recognise_engine(std::string_view operation);
  void note_end(uint64_t at);

  EvidenceFile file_;
  Timeline timeline_;
  ondemand::parser parser_;
  size_t events_ = 0, bad_ = 0, too_long_ = 0;
  uint64_t first_bad_ = 0, first_too_long_ = 0;
  bool with_stack_ = false, broken_ = false;
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
  ondemand::document document;
  ondemand::object event;
  broken_ = false;
  if (holds(parser_.iterate(text.data(), text.size(), text.size() + JsonStream::kPadding)
                .get(document)) &&
      holds(document.get_object().get(event)))
    read_fields(event);
  else
    broken_ = true;
  if (!broken_)
    ++events_;
  else if (bad_++ == 0)
    first_bad_ = at;
}

bool PyTorchTraceReader::holds(simdjson::error_code error) {
  broken_ = broken_ || (error != simdjson::SUCCESS && error != simdjson::NO_SUCH_FIELD);
  return error == simdjson::SUCCESS;
}

// False at the brace of "device":}. simdjson would go on from there at another depth, and promises
// nothing then. NaN, which Python writes, does no harm.
bool begins_value(ondemand::value value) {
  const std::string_view token = value.raw_json_token();
  return !token.empty() && std::string_view("}],:").find(token[0]) == std::string_view::npos;
}

// A value of another type is no fault of the file.
template <typename T>
bool PyTorchTraceReader::holds(ondemand::value value, T& to) {
  const simdjson::error_code error = value.get(to);
  const bool other_type = error == simdjson::INCORRECT_TYPE || error == simdjson::NUMBER_ERROR;
  return holds(other_type && begins_value(value) ? simdjson::NO_SUCH_FIELD : error);
}

std::optional<ondemand::value> PyTorchTraceReader::find(ondemand::object& object,
                                                        std::string_view key) {
  ondemand::value value;
  if (broken_ || !holds(object.find_field_unordered(key).get(value))) return {};
  return value;
}

std::optional<std::string_view> PyTorchTraceReader::find_text(ondemand::object& object,
                                                              std::string_view key) {
  std::string_view text;
  std::optional<ondemand::value> value = find(object, key);
  if (!value || !holds(*value, text)) return {};
  return text;
}

std::optional<int64_t> PyTorchTraceReader::find_time(ondemand::object& object,
                                                     std::string_view key) {
  std::optional<ondemand::value> value = find(object, key);
  if (!value) return {};
  broken_ = broken_ || !begins_value(*value);
  return trace_nanoseconds(value->raw_json_token());
}

// Looks for the fields in the order in which kineto writes them: each search goes on where the last
// one ended.
void PyTorchTraceReader::read_fields(ondemand::object& event) {
  const std::optional<std::string_view> category = find_text(event, "cat");
  if (!category) return;
  TraceActivity activity;
  activity.kind = event_kind(*category);
  if (activity.kind == EventKind::python) with_stack_ = true;
  if (activity.kind == EventKind::other || activity.kind == EventKind::python) return;
  if (activity.kind == EventKind::cpu_op && !file_.setup.engine.empty()) return;
  activity.name = find_text(event, "name").value_or("(no name)");
  if (activity.kind == EventKind::cpu_op) return recognise_engine(activity.name);
  const std::optional<int64_t> start = find_time(event, "ts"), duration = find_time(event, "dur");
  activity.start = start.value_or(0);
  if (start && duration) activity.duration = *duration;  // else it stays negative: impossible
  if (activity.kind != EventKind::annotation) read_arguments(event, activity);
  if (activity.device < 0) {
    activity.device = 0;
    std::optional<ondemand::value> process =
        find(event, "pid");  // the device, where kineto wrote it
    if (process) holds(*process, activity.device);
  }
  if (!broken_) add_activity(activity);
}

void PyTorchTraceReader::read_arguments(ondemand::object& event, TraceActivity& activity) {
  ondemand::object object;
  std::optional<ondemand::value> value = find(event, "args");
  if (!value || !holds(*value, object)) return;
  for (auto result : object) {
    ondemand::field field;
    if (!holds(std::move(result).get(field))) return;
    const char* key = field.key().raw();
    int64_t number = 0;
    if (key_is(key, "device")) {
      if (holds(field.value(), number)) activity.device = number;
    } else if (key_is(key, "correlation")) {
      if (holds(field.value(), number)) activity.correlation = uint32_t(number);
      if (activity.kind != EventKind::copy) return;  // the fields behind it are not needed
    } else if (key_is(key, "bytes")) {
      double bytes = 0;
      if (holds(field.value(), bytes)) activity.bytes = bytes;
    }
    if (broken_) return;
  }
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
  ondemand::document document;
  ondemand::object object;
  int64_t number = 0;
  broken_ = false;
  if (!holds(parser_.iterate(value.data(), value.size(), value.size() + JsonStream::kPadding)
                 .get(document)))
    return;
  if (key == "with_stack") {
    with_stack_ = with_stack_ || (holds(document.get_int64().get(number)) && number != 0);
  } else if (key == "deviceProperties") {
    read_devices(document);
  } else if (key == "distributedInfo" && holds(document.get_object().get(object))) {
    std::optional<ondemand::value> world = find(object, "world_size");
    if (world && holds(*world, number) && number > 0 && number <= 1'000'000)
      file_.setup.devices = int(number);
  }
}

void PyTorchTraceReader::read_devices(ondemand::document& document) {
  ondemand::array devices;
  if (!holds(document.get_array().get(devices))) return;
  for (auto result : devices) {
    ondemand::object device;
    if (!holds(std::move(result).get_object().get(device))) return;
    const std::optional<std::string_view> name = find_text(device, "name");
    if (broken_) return;
    if (!name) continue;
    if (file_.setup.device.empty()) file_.setup.device = *name;
    if (file_.setup.device != *name && file_.notes.size() < 16)
      file_.notes.push_back(fmt::format("the host has other devices too: {}", *name));
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
