// ridge serve: the page, the predictor's JSON API and the OpenAI API, from this process.
#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <optional>
#include <thread>

#include "base/error.h"
#include "base/text.h"
#include "cli/command.h"
#include "cli/serving_setup.h"
#include "serve/api_http.h"
#include "serve/lab_service.h"
#include "serve/openai_server.h"
#include "serve/server.h"

namespace ridge {
namespace {

constexpr const char* kServeExamples = R"(Examples:
  ridge serve                       the page and the model inside, on http://127.0.0.1:8080
  ridge serve model-Q4_K_M.gguf --api-key secret
  ridge serve --draft ridge-1m      drafts from a smaller model
  ridge serve --no-model --open     the page and the predictor only, in the browser
  curl localhost:8080/v1/completions -H 'Content-Type: application/json' -d '{"prompt": "Once"}'
  curl 'localhost:8080/api/predict?model=llama-3-8b&machine=h200&batch=32'

OpenAI's clients work with base_url http://127.0.0.1:8080/v1. Also there: /tokenize, /detokenize,
/health (503 while the model is loaded), /version and /metrics (Prometheus).

Listens on this machine only, unless --host names another address. Then set --api-key, and put a
proxy with TLS before it: keys and texts travel in the clear. Keys guard /v1, /tokenize and
/detokenize; the page, /api, /health, /version and /metrics need none. On a loopback address only
local names are answered (421), so a proxy must send Host: localhost. It
needs no internet. /api/openapi.json describes the predictor's API. SIGTERM and Ctrl-C let running
answers end for --drain seconds; a second signal ends at once.)";

struct ServeCommandOptions {
  ServeOptions serve;
  ServingSetup setup;
  OpenAiOptions api;
  std::string lab;  // results for the page
  bool open = false, no_model = false;
  int drain_s = 30;
};

// Opens the browser without waiting for it, and discards its output.
void open_browser(const std::string& url) {
  if (fork() != 0) return;
  if (!freopen("/dev/null", "w", stdout) || !freopen("/dev/null", "w", stderr)) _exit(1);
  execlp("xdg-open", "xdg-open", url.c_str(), nullptr);
  _exit(1);
}

// "Qwen/Qwen3-0.6B" as it is; of a path its last part without .gguf or .safetensors.
std::string model_name(const std::string& model) {
  if (model.empty()) return "ridge-7m";
  std::error_code ignored;
  if (!std::filesystem::exists(model, ignored)) return model;
  const std::filesystem::path path = std::filesystem::weakly_canonical(model, ignored);
  const std::string extension = path.extension().string();
  return extension == ".gguf" || extension == ".safetensors" ? path.stem().string()
                                                             : path.filename().string();
}

OpenAiOptions api_options(const ServeCommandOptions& options) {
  OpenAiOptions api = options.api;
  if (api.model_names.empty()) api.model_names.push_back(model_name(options.setup.engine.model));
  if (const char* key = std::getenv("RIDGE_API_KEY"); key != nullptr && *key != '\0') {
    api.keys.emplace_back(key);
  }
  return api;
}

// Signals are taken by a thread of their own, where stopping is safe. Must be made before any other
// thread, which inherits the mask.
class SignalThread {
 public:
  SignalThread() {
    sigemptyset(&signals_);
    sigaddset(&signals_, SIGINT);
    sigaddset(&signals_, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &signals_, nullptr);
  }
  // Calls `first` at the first signal; the second ends the program. Runs until then.
  void start(std::function<void()> first) {
    std::thread([signals = signals_, first = std::move(first)] {
      int signal = 0;
      sigwait(&signals, &signal);
      first();
      sigwait(&signals, &signal);
      _exit(128 + signal);
    }).detach();
  }

 private:
  sigset_t signals_;
};

// Loads the model on a thread of its own, while the server answers already.
class Loader {
 public:
  Loader(const ServingSetup& setup, OpenAiServer& api, HttpServer& server, std::string url)
      : thread_([this, &setup, &api, &server, url = std::move(url)] {
          try {
            auto [runner, options] = make_serving_engine(setup);
            // A supervisor starts the program again; nothing here could.
            options.on_failure = [this, &server](const std::string& error) {
              failure_ = std::make_exception_ptr(Error("the engine failed: {}", error));
              server.drain(std::chrono::seconds(1));
            };
            const std::string device = runner->device();
            api.start(std::move(runner), std::move(options));
            fmt::print("Serving {} on {}: OpenAI API at {}v1\n", api.model_name(), device, url);
            fflush(stdout);
          } catch (...) {
            failure_ = std::current_exception();
            done_ = true;  // before finish() can look
            server.stop();
          }
          done_ = true;
        }) {}
  // After the server has ended. Rethrows what kept the model from loading.
  void finish() {
    if (!done_) _exit(0);  // a large model may take minutes, and nobody waits for it any more
    thread_.join();
    if (failure_) std::rethrow_exception(failure_);
  }

 private:
  std::exception_ptr failure_;
  std::atomic<bool> done_ = false;
  std::thread thread_;
};

void serve(ServeCommandOptions& options) {
  if (!options.no_model) {
    check_serving_setup(options.setup);
    start_ranks(options.setup.engine);  // while there is one thread
  }
  SignalThread signals;
  const std::string& host = options.serve.host;
  std::optional<OpenAiServer> api;
  if (!options.no_model) {
    api.emplace(api_options(options));
  }
  LabService lab({options.lab, is_loopback(host), api.has_value()});
  HttpServer server(page_handler(host, api ? &*api : nullptr, &lab), page_limits(host), is_quick);
  const int port = server.bind(host, options.serve.port);
  const bool bare_v6 = host.find(':') != std::string::npos && host.front() != '[';
  const std::string url = fmt::format("http://{}:{}/", bare_v6 ? "[" + host + "]" : host, port);
  fmt::print("Ridge on {}\n", paint(Colour::bold, url));
  fmt::print("Press Ctrl-C to stop.\n");
  fflush(stdout);
  if (options.open) open_browser(url);
  signals.start([&] {
    if (api) api->drain();
    server.drain(std::chrono::seconds(options.drain_s));
  });
  std::optional<Loader> loader;
  if (api) loader.emplace(options.setup, *api, server, url);
  server.run();
  if (loader) loader->finish();
}

}  // namespace

void add_serve_command(CLI::App& app, Global&) {
  auto o = std::make_shared<ServeCommandOptions>();
  CLI::App* command =
      app.add_subcommand("serve", "Serve a model (OpenAI API), the page and the predictor's API");
  CLI::Option* no_model =
      command->add_flag("--no-model", o->no_model, "The page and the predictor only");
  command
      ->add_option("model", o->setup.engine.model,
                   "A folder with config.json and safetensors, a *.gguf; none: the one inside")
      ->excludes(no_model);
  command->add_option("--port", o->serve.port, "Port; 0 picks a free one")
      ->check(CLI::Range(0, 65535))
      ->capture_default_str();
  command->add_option("--host", o->serve.host, "Address to listen on")->capture_default_str();
  command->add_flag("--open", o->open, "Open the page in the browser");
  command->add_option("--lab", o->lab,
                      "Results of ridge lab --json for the page (default: the last ridge lab all)");
  command->add_option("--drain", o->drain_s, "Seconds that running answers get after SIGTERM")
      ->check(CLI::Range(0, 86400))
      ->capture_default_str();

  const char* kApi = "API";
  command->add_option("--api-key", o->api.keys, "Key that clients must send; may be repeated")
      ->allow_extra_args(false)
      ->group(kApi);
  command
      ->add_option("--served-model-name", o->api.model_names,
                   "The model's name for clients; may be repeated: further ones are aliases")
      ->allow_extra_args(false)
      ->group(kApi);
  command
      ->add_option("--cors-origin", o->api.origins,
                   "Origin of web pages that may use the API; * allows all; may be repeated")
      ->allow_extra_args(false)
      ->group(kApi);
  add_serving_options(*command, o->setup);
  command->footer(kServeExamples);
  command->callback([o] { serve(*o); });
}

}  // namespace ridge
