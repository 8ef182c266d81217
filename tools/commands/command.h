// One command of `fasa`: its flags and its work.
#pragma once

#include <CLI/CLI.hpp>
#include <memory>

namespace fasa {

class Command {
 public:
  virtual ~Command() = default;
  // Adds the subcommand and its flags to `app`. Parsing stores the flags' values in this object.
  virtual CLI::App* add_to(CLI::App& app) = 0;
  // Writes results to standard output and everything else to standard error. Returns the exit code;
  // throws Error.
  virtual int run() = 0;
};

std::unique_ptr<Command> make_generate_command();
std::unique_ptr<Command> make_chat_command();
std::unique_ptr<Command> make_template_command();
std::unique_ptr<Command> make_calibrate_command();
std::unique_ptr<Command> make_info_command();
std::unique_ptr<Command> make_demo_command();
std::unique_ptr<Command> make_pages_command();
std::unique_ptr<Command> make_config_command();
std::unique_ptr<Command> make_plan_command();
std::unique_ptr<Command> make_trace_command();
std::unique_ptr<Command> make_profile_command();
std::unique_ptr<Command> make_tune_command();
std::unique_ptr<Command> make_eval_command();
std::unique_ptr<Command> make_analyze_command();  // in builds with FASA_LAB
std::unique_ptr<Command> make_tokenize_command();
std::unique_ptr<Command> make_serve_command();  // in builds with Boost (FASA_SERVE)

}  // namespace fasa
