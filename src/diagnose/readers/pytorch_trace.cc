#include "diagnose/readers/pytorch_trace.h"

#include <simdjson.h>
#include <zlib.h>

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

struct EventArguments {
  std::optional<int64_t> device;
  int64_t correlation = 0;
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
  void read_fields(ondemand::object& event);
  void read_activity(EventKind kind, std::string_view name, ondemand::object& event, int64_t start,
                     int64_t duration);
  EventArguments read_arguments(ondemand::object& event, bool copy);
  void read_property(std::string_view key, std::string_view value);
  void read_devices(ondemand::document& document);
  void recognise_engine(std::string_view operation);
  void note_end(uint64_t at);

  EvidenceFile file_;
  Timeline timeline_;
  ondemand::parser parser_;
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
  ondemand::document document;
  ondemand::object event;
  if (parser_.iterate(text.data(), text.size(), text.size() + JsonStream::kPadding).get(document) ==
          simdjson::SUCCESS &&
      document.get_object().get(event) == simdjson::SUCCESS) {
    ++events_;
    read_fields(event);
  } else if (bad_++ == 0) {
    first_bad_ = at;
  }
}

void PyTorchTraceReader::read_fields(ondemand::object& event) {
  std::string_view category, name, start_token, duration_token;
  if (event["cat"].get_string().get(category) != simdjson::SUCCESS) return;
  const EventKind kind = event_kind(category);
  if (kind == EventKind::python) with_stack_ = true;
  if (kind == EventKind::other || kind == EventKind::python) return;
  if (kind == EventKind::cpu_op) {
    if (file_.setup.engine.empty() && event["name"].get_string().get(name) == simdjson::SUCCESS)
      recognise_engine(name);
    return;
  }
  if (event["name"].get_string().get(name) != simdjson::SUCCESS) name = "(no name)";
  const bool timed = event["ts"].raw_json_token().get(start_token) == simdjson::SUCCESS &&
                     event["dur"].raw_json_token().get(duration_token) == simdjson::SUCCESS;
  const std::optional<int64_t> start = timed ? trace_nanoseconds(start_token) : std::nullopt;
  const std::optional<int64_t> duration = timed ? trace_nanoseconds(duration_token) : std::nullopt;
  // The timeline counts times that cannot be.
  read_activity(kind, name, event, start.value_or(0), start && duration ? *duration : -1);
}

void PyTorchTraceReader::read_activity(EventKind kind, std::string_view name,
                                       ondemand::object& event, int64_t start, int64_t duration) {
  if (kind == EventKind::annotation)
    return timeline_.add_step(parse_step_annotation(name), start, duration);
  if (kind == EventKind::call) {
    const HostCall call = host_call_kind(name, duration);
    if (call == HostCall::other) return;
    const EventArguments arguments = read_arguments(event, false);
    return timeline_.add_call(0, start, duration, call, uint32_t(arguments.correlation));
  }
  const bool copy = kind == EventKind::copy;
  const uint32_t id = copy ? timeline_.intern(name, KernelFamily::copy) : timeline_.intern(name);
  const auto direction = name.find("HtoD") != name.npos   ? Timeline::Copy::host_to_device
                         : name.find("DtoH") != name.npos ? Timeline::Copy::device_to_host
                                                          : Timeline::Copy::other;
  EventArguments arguments = read_arguments(event, copy);
  if (!arguments.device) {
    int64_t process = 0;  // kineto has the device's number there
    arguments.device = event["pid"].get_int64().get(process) == simdjson::SUCCESS ? process : 0;
  }
  const uint32_t correlation = uint32_t(arguments.correlation);
  if (copy)
    timeline_.add_copy(*arguments.device, 0, start, duration, id, correlation, direction,
                       arguments.bytes);
  else
    timeline_.add_kernel(*arguments.device, 0, start, duration, id, correlation);
}

EventArguments PyTorchTraceReader::read_arguments(ondemand::object& event, bool copy) {
  EventArguments arguments;
  ondemand::object object;
  if (event["args"].get_object().get(object) != simdjson::SUCCESS) return arguments;
  for (auto result : object) {
    ondemand::field field;
    if (std::move(result).get(field) != simdjson::SUCCESS) break;
    const char* key = field.key().raw();
    int64_t number = 0;
    if (key_is(key, "device")) {
      if (field.value().get_int64().get(number) == simdjson::SUCCESS) arguments.device = number;
    } else if (key_is(key, "correlation")) {
      if (field.value().get_int64().get(number) == simdjson::SUCCESS)
        arguments.correlation = number;
      if (!copy) break;  // the fields behind it are many, and not needed
    } else if (copy && key_is(key, "bytes")) {
      double bytes = 0;
      if (field.value().get_double().get(bytes) == simdjson::SUCCESS) arguments.bytes = bytes;
    }
  }
  return arguments;
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
  if (parser_.iterate(value.data(), value.size(), value.size() + JsonStream::kPadding)
          .get(document) != simdjson::SUCCESS)
    return;
  int64_t number = 0;
  if (key == "with_stack") {
    with_stack_ = with_stack_ || (document.get_int64().get(number) == simdjson::SUCCESS && number);
  } else if (key == "deviceProperties") {
    read_devices(document);
  } else if (key == "distributedInfo") {
    if (document["world_size"].get_int64().get(number) == simdjson::SUCCESS && number > 0 &&
        number <= 1'000'000)
      file_.setup.devices = int(number);
  }
}

void PyTorchTraceReader::read_devices(ondemand::document& document) {
  ondemand::array devices;
  if (document.get_array().get(devices) != simdjson::SUCCESS) return;
  for (auto result : devices) {
    ondemand::value device;
    std::string_view name;
    if (std::move(result).get(device) != simdjson::SUCCESS) return;
    if (device["name"].get_string().get(name) != simdjson::SUCCESS) continue;
    if (file_.setup.device.empty()) file_.setup.device = name;
    if (file_.setup.device != name)
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

EvidenceFile read_pytorch_trace(const std::string& path) {
  const gzFile packed = gzopen(path.c_str(), "rb");  // reads plain files as they are
  if (packed == nullptr) throw Error("{}: cannot be opened", path);
  const std::unique_ptr<gzFile_s, int (*)(gzFile)> owner(packed, gzclose);
  gzbuffer(packed, 1 << 18);
  bool damaged = false;
  uint64_t done = 0;
  JsonStream stream([&](char* into, size_t size) {
    const int got = gzread(packed, into, unsigned(std::min<size_t>(size, 1 << 22)));
    damaged = damaged || got < 0;
    done += uint64_t(std::max(got, 0));
    return size_t(std::max(got, 0));
  });
  EvidenceFile file = read_pytorch_trace_events(stream, path);
  if (damaged)
    file.notes.push_back(fmt::format("damaged gzip data after byte {} of the unpacked text", done));
  return file;
}

}  // namespace ridge
