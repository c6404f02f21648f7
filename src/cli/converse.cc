#include "cli/converse.h"

#include <fmt/format.h>

#include <condition_variable>
#include <iostream>
#include <mutex>

#include "base/error.h"
#include "base/text.h"
#include "base/units.h"
#include "cli/interrupt.h"
#include "serving/serving_engine.h"
#include "text/chat/chat_template.h"

namespace ridge {
namespace {

// One answer on its way from the engine's thread to the terminal, and what its steps took.
class AnswerWatch : public ServingObserver {
 public:
  void begin() {
    const std::lock_guard lock(mutex_);
    text_.clear();
    error_.clear();
    ended_ = false;
    prompt_tokens_ = tokens_ = 0;
    prompt_s_ = seconds_ = roof_s_ = 0;
  }
  void on_outputs(std::vector<RequestOutput>&& outputs) {
    const std::lock_guard lock(mutex_);
    for (RequestOutput& output : outputs) {
      text_ += output.text;
      error_ = output.error;
      ended_ = ended_ || output.end.has_value();
    }
    changed_.notify_one();
  }
  void on_step(const StepReport& step) override {
    const std::lock_guard lock(mutex_);
    if (step.prefill_tokens > 0) {
      prompt_tokens_ += step.prefill_tokens;
      prompt_s_ += step.measured_s;
    } else if (step.generated_tokens > 0) {
      tokens_ += step.generated_tokens;
      seconds_ += step.measured_s;
      roof_s_ += step.roof_s;
      wall_ = step.wall;
    }
  }
  // New text; false once the answer has ended. Returns at least every 50 ms.
  bool next(std::string& text) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, std::chrono::milliseconds(50),
                      [&] { return ended_ || !text_.empty(); });
    text = std::exchange(text_, {});
    return !ended_;
  }
  std::string error() const { return error_; }
  std::string summary() const {
    std::string line =
        fmt::format("prompt {} tokens in {}", prompt_tokens_, pretty_time(prompt_s_));
    if (tokens_ == 0 || seconds_ == 0) return line;
    line += fmt::format("; {} tokens at {}", tokens_,
                        paint(Colour::bold, pretty_number(tokens_ / seconds_) + " tok/s"));
    if (roof_s_ > 0) {
      line += fmt::format(", {} of the roof; wall: {}", pretty_percent(roof_s_ / seconds_),
                          wall_name(wall_));
    }
    return line;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::string text_, error_;
  bool ended_ = false;
  int prompt_tokens_ = 0, tokens_ = 0;
  double prompt_s_ = 0, seconds_ = 0, roof_s_ = 0;
  Wall wall_ = Wall::memory;
};

}  // namespace

void converse(std::unique_ptr<Runner> runner, const EngineOptions& engine_options,
              const GenerateOptions& generate, const std::string& system_message) {
  const Tokenizer* tokenizer = runner->weights().tokenizer.get();
  if (tokenizer == nullptr)
    throw Error("a conversation needs a tokenizer; random weights have none");
  ServingOptions options;
  options.system = roof_system(engine_options, *runner);
  options.stack = engine_stack(*options.system);
  AnswerWatch watch;
  ServingEngine engine(
      std::move(runner), std::move(options),
      [&](std::vector<RequestOutput>&& outputs) { watch.on_outputs(std::move(outputs)); }, &watch);

  std::vector<ChatMessage> messages;
  if (!system_message.empty()) messages.push_back({"system", system_message});
  std::string line;
  while (fmt::print(stderr, "{}", paint(Colour::bold, "> ")), std::getline(std::cin, line)) {
    if (line.empty()) continue;
    messages.push_back({"user", line});
    ServingRequest request;
    request.id = engine.new_id();
    request.prompt = chat_tokens(*tokenizer, messages);
    request.generate = generate;
    if (int(request.prompt.size()) >= engine.max_context()) {
      throw Error("the conversation's {} tokens do not fit a context of {}: raise --context",
                  request.prompt.size(), engine.max_context());
    }
    const RequestId id = request.id;
    const InterruptScope interrupt;  // Ctrl-C ends the answer; at the prompt it ends the program
    watch.begin();
    engine.submit(std::move(request));
    std::string answer, text;
    for (bool going = true; going;) {
      going = watch.next(text);
      std::fwrite(text.data(), 1, text.size(), stdout);
      std::fflush(stdout);
      answer += text;
      if (interrupt.flag().load(std::memory_order_relaxed)) engine.cancel(id);
    }
    fmt::print("\n");
    if (!watch.error().empty()) throw Error("{}", watch.error());
    fmt::print(stderr, "{}\n", watch.summary());
    messages.push_back({"assistant", answer});
  }
  fmt::print(stderr, "\n");
}

}  // namespace ridge
