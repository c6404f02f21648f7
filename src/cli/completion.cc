// `ridge completion SHELL` and the hidden `ridge manual`: made from the definitions of the options,
// and installed by `cmake --install`.
#include <fmt/format.h>

#include "cli/command.h"
#include "cli/command_text.h"

namespace ridge {

constexpr const char* kCompletionFooter = R"(Examples:
  source <(ridge completion bash)
  ridge completion zsh > ~/.zfunc/_ridge
  ridge completion fish > ~/.config/fish/completions/ridge.fish)";

void add_completion_command(CLI::App& app, Global&) {
  auto shell = std::make_shared<std::string>();
  CLI::App* completion = app.add_subcommand("completion", "Print the completion script of a shell");
  completion->add_option("shell", *shell, "bash, zsh or fish")
      ->required()
      ->check(CLI::IsMember({"bash", "zsh", "fish"}));
  completion->footer(kCompletionFooter);
  completion->callback([&app, shell] {
    const CommandText ridge = describe_commands(app);
    fmt::print("{}", *shell == "bash"  ? bash_completion(ridge)
                     : *shell == "zsh" ? zsh_completion(ridge)
                                       : fish_completion(ridge));
  });
  CLI::App* manual = app.add_subcommand("manual", "Print the manual page, in roff")->group("");
  manual->callback([&app] { fmt::print("{}", manual_page(describe_commands(app))); });
}

}  // namespace ridge
