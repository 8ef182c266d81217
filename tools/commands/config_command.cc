// fasa config: the effective config, or the reference page.
#include <fmt/format.h>

#include "runtime/config/config_options.h"
#include "tools/commands/command.h"
#include "tools/flags/config_flags.h"

namespace fasa {
namespace {

class ConfigCommand final : public Command {
 public:
  CLI::App* add_to(CLI::App& app) override {
    command_ = app.add_subcommand("config", "Print the effective config as JSON");
    command_->add_flag("--reference", reference_,
                       "Print docs/configuration.md instead of the config");
    flags_.add_to(*command_);
    return command_;
  }

  int run() override {
    reject_unknown_arguments(*command_);
    if (reference_) {
      fmt::print("{}", config_reference());
    } else {
      fmt::print("{}\n", config_to_json(flags_.load()).dump(2));
    }
    return 0;
  }

 private:
  CLI::App* command_ = nullptr;
  ConfigFlags flags_;
  bool reference_ = false;
};

}  // namespace

std::unique_ptr<Command> make_config_command() { return std::make_unique<ConfigCommand>(); }

}  // namespace fasa
