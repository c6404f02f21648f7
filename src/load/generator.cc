#include "load/generator.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>

#include "load/completion_stream.h"

namespace ridge {
namespace {

constexpr double kTick = 0.1;

class Generator {
 public:
  Generator(HttpClient& client, const LoadEndpoint& endpoint, const Workload& workload,
            const LoadOptions& options, const std::function<void(const LoadProgress&)>& on_progress)
      : client_(client),
        endpoint_(endpoint),
        workload_(workload),
        options_(options),
        on_progress_(on_progress) {}

  LoadRecord run() {
    start_s_ = client_.now();
    if (options_.open_loop) {
      next_arrival();
    } else {
      start_waiting();
    }
    client_.at(start_s_ + kTick, [this] { tick(); });
    client_.run();
    record_.interrupted = stopped_;
    return std::move(record_);
  }

 private:
  // One conversation in progress; used again for the next.
  struct Slot : HttpReceiver {
    explicit Slot(Generator& g) : generator(g) {}
    void on_status(int code) override { status = code; }
    void on_body(std::string_view bytes) override { generator.take(*this, bytes); }
    void on_end(HttpEnd end) override { generator.finish(*this, end); }

    Generator& generator;
    int conversation = 0, turn = 0, status = 0;
    std::string messages;  // chat: the history, as JSON objects with commas between
    CompletionStream stream;
  };

  double elapsed() const { return client_.now() - start_s_; }
  bool may_start() const {
    return !stopped_ && next_ < workload_.conversations() && elapsed() < options_.duration_s;
  }

  // Starts the conversations that may start now: those that arrived, while there is room.
  void start_waiting() {
    while (may_start() && in_flight_ < options_.concurrency) {
      if (options_.open_loop) {
        if (next_ >= arrived_) return;
        const double late = elapsed() - workload_.arrivals()[size_t(next_)];
        record_.latest_start_s = std::max(record_.latest_start_s, late);
      }
      Slot* slot = nullptr;
      if (free_.empty()) {
        slots_.push_back(std::make_unique<Slot>(*this));
        slot = slots_.back().get();
      } else {
        slot = free_.back();
        free_.pop_back();
      }
      slot->conversation = next_++;
      slot->turn = 0;
      slot->messages.clear();
      send(*slot);
    }
  }

  void next_arrival() {
    arrival_due_ = false;
    const std::vector<double>& arrivals = workload_.arrivals();
    const double now = elapsed();
    while (arrived_ < workload_.conversations() && arrivals[size_t(arrived_)] <= now) ++arrived_;
    start_waiting();
    if (!may_start() || arrived_ == workload_.conversations()) return;
    const double arrival = arrivals[size_t(arrived_)];
    if (arrival >= options_.duration_s) return;
    arrival_due_ = true;
    client_.at(start_s_ + arrival, [this] { next_arrival(); });
  }

  void send(Slot& slot) {
    ++in_flight_;
    record_.peak_in_flight = std::max(record_.peak_in_flight, in_flight_);
    const std::string body = options_.chat ? chat_body(slot) : completion_body(slot);
    slot.status = 0;
    slot.stream.keep_text = slot.turn + 1 < workload_.turns(slot.conversation);
    slot.stream.start(client_.now());
    client_.send(options_.chat ? "/v1/chat/completions" : "/v1/completions", body, slot);
  }

  // What both kinds of requests have in common, after the prompt.
  std::string body_end(const Slot& slot) const {
    const int tokens = workload_.output_tokens(slot.conversation, slot.turn);
    return fmt::format(
        R"(,"model":{},"max_tokens":{},"temperature":0,"ignore_eos":{},"stream":true,)"
        R"("stream_options":{{"include_usage":true}}}})",
        nlohmann::json(endpoint_.model).dump(), tokens, options_.ignore_eos);
  }

  std::string completion_body(const Slot& slot) const {
    if (endpoint_.ids.empty()) {
      std::string text = words(workload_.prefix(slot.conversation, word_count()));
      if (!text.empty()) text += ' ';
      text += words(workload_.prompt(slot.conversation, slot.turn, word_count()));
      return fmt::format(R"({{"prompt":"{}"{})", text, body_end(slot));
    }
    std::string body = R"({"prompt":[)";
    const auto add = [&](const std::vector<uint32_t>& symbols) {
      for (const uint32_t symbol : symbols) {
        fmt::format_to(std::back_inserter(body), "{},", endpoint_.ids[symbol]);
      }
    };
    const auto count = uint32_t(endpoint_.ids.size());
    add(workload_.prefix(slot.conversation, count));
    add(workload_.prompt(slot.conversation, slot.turn, count));
    body.back() = ']';  // the last comma: a prompt has at least one token
    return body + body_end(slot);
  }

  std::string chat_body(Slot& slot) const {
    const auto add = [&](const char* role, const std::string& content) {
      if (!slot.messages.empty()) slot.messages += ',';
      slot.messages += fmt::format(R"({{"role":"{}","content":"{}"}})", role, content);
    };
    const std::string prefix =
        slot.turn == 0 ? words(workload_.prefix(slot.conversation, word_count())) : "";
    if (!prefix.empty()) add("system", prefix);
    add("user", words(workload_.prompt(slot.conversation, slot.turn, word_count())));
    return fmt::format(R"({{"messages":[{}]{})", slot.messages, body_end(slot));
  }

  static uint32_t word_count() { return uint32_t(load_words().size()); }
  static std::string words(const std::vector<uint32_t>& symbols) {
    std::string text;
    for (const uint32_t symbol : symbols) {
      if (!text.empty()) text += ' ';
      text += load_words()[symbol];
    }
    return text;
  }

  void take(Slot& slot, std::string_view bytes) {
    if (slot.status != 200) {
      slot.stream.push_error(bytes);
      return;
    }
    const double now = client_.now();
    const int before = slot.stream.chunks();
    slot.stream.push(bytes, now);
    const int chunks = slot.stream.chunks() - before;
    chunks_ += chunks;
    const auto second = size_t(now - start_s_);
    if (record_.chunks_per_second.size() <= second) record_.chunks_per_second.resize(second + 1);
    record_.chunks_per_second[second] += chunks;
  }

  static std::string error_kind(const Slot& slot, HttpEnd end) {
    switch (end) {
      case HttpEnd::complete:
        break;
      case HttpEnd::no_connection:
        return "no connection";
      case HttpEnd::cut:
        return "cut";
      case HttpEnd::timeout:
        return "timeout";
      case HttpEnd::malformed:
        return "malformed";
      case HttpEnd::cancelled:
        return "interrupted";
    }
    if (slot.status != 200) return fmt::format("http {}", slot.status);
    if (!slot.stream.error().empty()) return "error in stream";
    if (slot.stream.malformed()) return "malformed";
    if (!slot.stream.whole()) return "cut";
    return slot.stream.any() ? "" : "no tokens";
  }

  void finish(Slot& slot, HttpEnd end) {
    --in_flight_;
    const CompletionStream& stream = slot.stream;
    LoadRequest request;
    request.start_s = stream.start_s() - start_s_;
    request.error = error_kind(slot, end);
    request.has_usage = stream.has_usage();
    request.cached_tokens = stream.cached_tokens();
    request.output_tokens = stream.output_tokens();
    request.prompt_tokens =
        stream.has_usage()
            ? stream.prompt_tokens()
            : workload_.prompt_tokens(slot.conversation, slot.turn) + workload_.prefix_tokens();
    const bool completed = request.error.empty();
    if (completed) {
      ++completed_;
      request.ttft_s = stream.first_s() - stream.start_s();
      request.latency_s = stream.last_s() - stream.start_s();
      record_.itl_s.insert(record_.itl_s.end(), stream.gaps().begin(), stream.gaps().end());
    } else if (!stream.error().empty()) {
      record_.messages.emplace(request.error, stream.error());
    }
    record_.duration_s = elapsed();
    record_.requests.push_back(std::move(request));

    if (completed && !stopped_ && ++slot.turn < workload_.turns(slot.conversation) &&
        elapsed() < options_.duration_s) {
      slot.messages +=
          fmt::format(R"(,{{"role":"assistant","content":{}}})",
                      nlohmann::json(stream.text())
                          .dump(-1, ' ', true, nlohmann::json::error_handler_t::replace));
      send(slot);
    } else {
      free_.push_back(&slot);
    }
    start_waiting();
  }

  void tick() {
    if (options_.interrupted && *options_.interrupted && !stopped_) {
      stopped_ = true;
      client_.cancel_all();
    }
    if (on_progress_) {
      on_progress_({.elapsed_s = elapsed(),
                    .planned = workload_.requests(),
                    .completed = completed_,
                    .failed = int(record_.requests.size()) - completed_,
                    .in_flight = in_flight_,
                    .chunks = chunks_});
    }
    if (!stopped_ && (in_flight_ > 0 || arrival_due_))
      client_.at(client_.now() + kTick, [this] { tick(); });
  }

  HttpClient& client_;
  const LoadEndpoint& endpoint_;
  const Workload& workload_;
  const LoadOptions& options_;
  const std::function<void(const LoadProgress&)>& on_progress_;
  double start_s_ = 0;
  std::vector<std::unique_ptr<Slot>> slots_;
  std::vector<Slot*> free_;
  int next_ = 0;     // the next conversation to start
  int arrived_ = 0;  // open loop: conversations that have arrived
  bool arrival_due_ = false;
  int in_flight_ = 0, completed_ = 0;
  long chunks_ = 0;
  bool stopped_ = false;
  LoadRecord record_;
};

}  // namespace

LoadRecord run_load(HttpClient& client, const LoadEndpoint& endpoint, const Workload& workload,
                    const LoadOptions& options,
                    const std::function<void(const LoadProgress&)>& on_progress) {
  return Generator(client, endpoint, workload, options, on_progress).run();
}

int max_connections() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return 1024 - 64;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
  getrlimit(RLIMIT_NOFILE, &limit);
  return static_cast<int>(std::min<rlim_t>(limit.rlim_cur, 65'536)) - 64;  // 64 for everything else
}

}  // namespace ridge
