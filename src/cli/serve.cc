// ridge serve: the page, the predictor's JSON API and the OpenAI API, from this process.
#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>

#include "base/error.h"
#include "base/free_memory.h"
#include "base/text.h"
#include "cli/command.h"
#include "cli/serving_setup.h"
#include "cli/step_pace_option.h"
#include "openai/openai_server.h"
#include "page/access.h"
#include "page/lab_service.h"
#include "page/server.h"

namespace ridge {
namespace {

constexpr const char* kServeExamples = R"(Examples:
  ridge serve                       the page and the model inside, on http://127.0.0.1:8080
  ridge serve model-Q4_K_M.gguf --api-key secret
  ridge serve --draft ridge-1m      drafts from a smaller model
  ridge serve --dp 2                two replicas, requests sent where their beginning is cached
  ridge serve --no-model --open     the page and the predictor only, in the browser
  RIDGE_API_KEY=secret ridge serve --host 0.0.0.0 --allowed-hosts models.example.com
  curl localhost:8080/v1/completions -H 'Content-Type: application/json' -d '{"prompt": "Once"}'
  curl 'localhost:8080/api/predict?model=llama-3-8b&machine=h200&batch=32'

OpenAI's clients work with base_url http://127.0.0.1:8080/v1. Also there: /tokenize, /detokenize,
/health (503 while the model is loaded), /version and /metrics (Prometheus).

Listens on this machine only, unless --host names another address. Others may then ask only with a
key (--api-key or RIDGE_API_KEY), or all of them with --no-auth; put a proxy with TLS before it, as
keys and texts travel in the clear. Keys guard /v1, /tokenize and /detokenize, and where others may
ask /api too; the page asks for the key once. /health, /version and /metrics need none. Requests
must name this server: local names on a loopback address, numeric addresses and the machine's name
elsewhere, and those of --allowed-hosts, which a proxy's clients use. It needs no internet.
/api/openapi.json describes the predictor's API. SIGTERM and Ctrl-C let running answers end for
--drain seconds, then the program ends whatever runs; a second signal ends it at once.)";

struct ServeCommandOptions {
  int port = 8080;
  AccessRules access;
  HttpLimits limits;
  ServingSetup setup;
  std::vector<std::string> model_names;
  std::string lab;  // results for the page
  bool open = false, no_model = false, no_auth = false;
  size_t body_mib = 128;
  int drain_s = 30;
  std::string step_pace;  // for tests: cli/step_pace_option.h
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

// Nobody opens a server to others by mistake.
void check_access(AccessRules& access, bool no_auth) {
  if (const char* key = std::getenv("RIDGE_API_KEY"); key != nullptr && *key != '\0') {
    access.keys.emplace_back(key);
  }
  for (const std::string& key : access.keys) {
    if (key.empty()) throw OptionError("api-key", "--api-key is empty");
  }
  if (no_auth && !access.keys.empty()) {
    throw OptionError("no-auth",
                      "--no-auth and a key (--api-key, RIDGE_API_KEY) exclude each other");
  }
  if (!access.exposed()) return;
  const std::string why = is_loopback(access.bound_host)
                              ? "--allowed-hosts"
                              : fmt::format("--host {}", access.bound_host);
  if (access.keys.empty() && !no_auth) {
    throw OptionError("api-key",
                      fmt::format("{} lets others use this server: give --api-key KEY (or "
                                  "RIDGE_API_KEY), or --no-auth to let everybody in",
                                  why));
  }
  if (no_auth) {
    fmt::print(stderr, "ridge: {} and --no-auth: everybody who reaches this server may use it\n",
               why);
  }
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
  // Calls `first` at the first signal. The second ends the program, and so does the end of `limit`
  // after the first, whatever hangs. Runs until then.
  void start(std::chrono::seconds limit, std::function<void()> first) {
    std::thread([signals = signals_, limit, first = std::move(first)] {
      int signal = 0;
      sigwait(&signals, &signal);
      first();
      // What ends in time does so within the limit and a moment.
      const timespec wait{.tv_sec = limit.count(), .tv_nsec = 400'000'000};
      signal = sigtimedwait(&signals, nullptr, &wait);
      if (signal > 0) _exit(128 + signal);
      fmt::print(stderr, "ridge: ended after --drain {} with work that did not end\n",
                 limit.count());
      _exit(0);
    }).detach();
  }

 private:
  sigset_t signals_;
};

// Loads the model on a thread of its own, while the server answers already.
class Loader {
 public:
  Loader(const ServingSetup& setup, const std::vector<EngineOptions>& engines, OpenAiServer& api,
         HttpServer& server, std::string url)
      : state_(std::make_shared<State>()),
        thread_([this, &setup, &engines, &api, &server, url = std::move(url)] {
          state_->server = &server;
          state_->serving = int(engines.size());
          try {
            std::vector<ReplicaGroup::Parts> replicas = make_serving_engines(setup, engines);
            for (size_t r = 0; r < replicas.size(); ++r) {
              replicas[r].options.on_failure = [state = state_, r](const std::string& error) {
                state->on_failure(r, error);
              };
            }
            std::string device = replicas.front().runner->device();
            if (replicas.size() > 1) device = fmt::format("{} x {}", replicas.size(), device);
            api.start(std::move(replicas));
            fmt::print("Serving {} on {}: OpenAI API at {}v1\n", api.model_name(), device, url);
            fflush(stdout);
          } catch (...) {
            state_->fail(std::current_exception());
            done_ = true;  // before finish() can look
            server.stop();
          }
          done_ = true;
        }) {}
  // After the server has ended. Rethrows what kept the model from loading.
  void finish() {
    if (!done_) _exit(0);  // a large model may take minutes, and nobody waits for it any more
    thread_.join();
    if (const std::exception_ptr failure = state_->finish()) std::rethrow_exception(failure);
  }

 private:
  // Replicas may fail until the API's engines have ended, which is after the server and the loader.
  struct State {
    // On the thread of a replica. The last one ends the server: a supervisor starts the program
    // again, which nothing here could.
    void on_failure(size_t replica, const std::string& error) {
      const std::lock_guard lock(mutex);
      if (--serving > 0) {
        fmt::print(stderr, "ridge: replica {} failed, {} still serving: {}\n", replica, serving,
                   error);
        return;
      }
      failure = std::make_exception_ptr(Error("the engine failed: {}", error));
      if (server) server->drain(std::chrono::seconds(1));
    }
    void fail(std::exception_ptr error) {
      const std::lock_guard lock(mutex);
      failure = std::move(error);
    }
    std::exception_ptr finish() {
      const std::lock_guard lock(mutex);
      server = nullptr;
      return failure;
    }

    std::mutex mutex;
    HttpServer* server = nullptr;
    int serving = 0;  // replicas that have not failed
    std::exception_ptr failure;
  };

  std::shared_ptr<State> state_;
  std::atomic<bool> done_ = false;
  std::thread thread_;
};

void serve(ServeCommandOptions& options) {
  check_access(options.access, options.no_auth);
  options.limits.all_body_bytes = options.body_mib << 20;
  std::vector<EngineOptions> engines;
  if (!options.no_model) {
    check_serving_setup(options.setup);
    engines = start_replicas(options.setup);  // while there is one thread
  }
  limit_kept_memory();
  SignalThread signals;
  options.setup.pace = make_step_pace(options.step_pace);
  const AccessRules& access = options.access;
  const std::string& host = access.bound_host;
  std::optional<OpenAiServer> api;
  if (!options.no_model) {
    if (options.model_names.empty()) {
      options.model_names.push_back(model_name(options.setup.engine.model));
    }
    api.emplace(options.model_names);
  }
  LabService lab({options.lab, !access.exposed(), api.has_value()});
  HttpServer server(page_handler(access, api ? &*api : nullptr, &lab),
                    page_limits(access, options.limits));
  const int port = server.bind(host, options.port);
  const bool bare_v6 = host.find(':') != std::string::npos && host.front() != '[';
  const std::string url = fmt::format("http://{}:{}/", bare_v6 ? "[" + host + "]" : host, port);
  fmt::print("Ridge on {}\n", paint(Colour::bold, url));
  fmt::print("Press Ctrl-C to stop.\n");
  fflush(stdout);
  if (options.open) open_browser(url);
  signals.start(std::chrono::seconds(options.drain_s), [&] {
    if (api) api->drain();
    server.drain(std::chrono::seconds(options.drain_s));
  });
  std::optional<Loader> loader;
  if (api) loader.emplace(options.setup, engines, *api, server, url);
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
  command->add_option("--port", o->port, "Port; 0 picks a free one")
      ->check(CLI::Range(0, 65535))
      ->capture_default_str();
  command->add_option("--host", o->access.bound_host, "Address to listen on")
      ->capture_default_str();
  command->add_flag("--open", o->open, "Open the page in the browser");
  command->add_option("--lab", o->lab,
                      "Results of ridge lab --json for the page (default: the last ridge lab all)");
  command->add_option("--drain", o->drain_s, "Seconds that running answers get after SIGTERM")
      ->check(CLI::Range(0, 86400))
      ->capture_default_str();

  // For tests: without a group the help, the completions and the manual leave it out.
  command->add_option("--step-pace", o->step_pace, "Holds or slows the steps")->group("");

  const char* kAccess = "Access";
  command->add_option("--api-key", o->access.keys, "Key that clients must send; may be repeated")
      ->allow_extra_args(false)
      ->group(kAccess);
  command->add_flag("--no-auth", o->no_auth, "No key is asked for, also where others may ask")
      ->group(kAccess);
  command
      ->add_option("--allowed-hosts", o->access.allowed_hosts,
                   "Further names of this server, comma-separated; * allows all")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->group(kAccess);
  command->add_option("--max-connections", o->limits.connections, "Connections in all")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str()
      ->group(kAccess);
  command
      ->add_option("--max-client-connections", o->limits.connections_per_client,
                   "Connections of one address")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str()
      ->group(kAccess);
  command
      ->add_option("--max-body-memory", o->body_mib,
                   "MiB of all requests' bodies at once; more get 503")
      ->check(CLI::Range(8, 1 << 20))
      ->capture_default_str()
      ->group(kAccess);

  const char* kApi = "API";
  command
      ->add_option("--served-model-name", o->model_names,
                   "The model's name for clients; may be repeated: further ones are aliases")
      ->allow_extra_args(false)
      ->group(kApi);
  command
      ->add_option("--cors-origin", o->access.origins,
                   "Origin of web pages that may use the API; * allows all; may be repeated")
      ->allow_extra_args(false)
      ->group(kApi);
  add_serving_options(*command, o->setup);
  command->footer(kServeExamples);
  command->callback([o] { serve(*o); });
}

}  // namespace ridge
