// ridge serve: the page and the JSON API, from this process.
#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <thread>

#include "base/text.h"
#include "cli/command.h"
#include "serve/server.h"

namespace ridge {
namespace {

constexpr const char* kServeExamples = R"(Examples:
  ridge serve                       the page on http://127.0.0.1:8080
  ridge serve --port 9000 --open    another port, and opens the browser
  curl 'localhost:8080/api/predict?model=llama-3-8b&machine=h200&batch=32'
Listens on this machine only, unless --host names another address. There is no authentication, so
expose it only to people you trust. It needs no internet. /api/openapi.json describes the API.)";

// Opens the browser without waiting for it, and discards its output.
void open_browser(const std::string& url) {
  if (fork() != 0) return;
  if (!freopen("/dev/null", "w", stdout) || !freopen("/dev/null", "w", stderr)) _exit(1);
  execlp("xdg-open", "xdg-open", url.c_str(), nullptr);
  _exit(1);
}

void serve(const ServeOptions& options, bool open) {
  HttpServer server(page_handler(options.host), HttpLimits{});
  const int port = server.bind(options.host, options.port);
  const bool bare_v6 = options.host.find(':') != std::string::npos && options.host.front() != '[';
  const std::string host = bare_v6 ? "[" + options.host + "]" : options.host;
  const std::string url = fmt::format("http://{}:{}/", host, port);
  fmt::print("Ridge on {}\n", paint(Colour::bold, url));
  fmt::print("Press Ctrl-C to stop.\n");
  fflush(stdout);
  if (open) open_browser(url);

  // A signal ends the server from a thread of its own, where stopping is safe.
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  std::thread([&server, signals] {
    int signal = 0;
    sigwait(&signals, &signal);
    server.stop();
  }).detach();
  server.run();
}

}  // namespace

void add_serve_command(CLI::App& app, Global&) {
  struct Options {
    ServeOptions serve;
    bool open = false;
  };
  auto o = std::make_shared<Options>();
  CLI::App* command =
      app.add_subcommand("serve", "Serve the page and the JSON API on this machine");
  command->add_option("--port", o->serve.port, "Port; 0 picks a free one")
      ->check(CLI::Range(0, 65535))
      ->capture_default_str();
  command->add_option("--host", o->serve.host, "Address to listen on")->capture_default_str();
  command->add_flag("--open", o->open, "Open the page in the browser");
  command->footer(kServeExamples);
  command->callback([o] { serve(o->serve, o->open); });
}

}  // namespace ridge
