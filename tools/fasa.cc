// The `fasa` command. Exit codes: 0 success, 2 usage or config, 3 invalid model or input file, 4
// budget too small, 5 device failure, 1 anything else.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/base/units.h"
#include "runtime/io/nearest.h"
#include "tools/commands/command.h"
#include "tools/commands/version.h"
#include "tools/flags/help_text.h"

namespace fasa {
namespace {

constexpr int kUsage = static_cast<int>(ErrorKind::kUsage);

void print_error(std::string_view message) { fmt::print(stderr, "fasa: error: {}\n", message); }

int run_chosen(const std::vector<std::pair<CLI::App*, std::unique_ptr<Command>>>& commands) {
  for (const auto& [app, command] : commands) {
    if (app->parsed()) return command->run();
  }
  return kUsage;
}

// What CLI11 parses: the arguments from the last to the first; `fasa help X` as `fasa X --help`.
std::vector<std::string> parsed_arguments(int argc, char** argv) {
  std::vector<std::string> arguments(argv + 1, argv + argc);
  if (!arguments.empty() && arguments.front() == "help") {
    arguments.erase(arguments.begin());
    arguments.emplace_back("--help");
  }
  std::reverse(arguments.begin(), arguments.end());
  return arguments;
}

int finish(int code) {
  // Reports write errors, such as a full disk or a closed pipe, as failure.
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) {
    print_error("cannot write to standard output");
    return code == 0 ? 1 : code;
  }
  return code;
}

// Numbers of flags may be written as 128k. Flags of the config's options are read later.
void take_counts(CLI::App& command) {
  const CLI::Validator count(
      [](std::string& text) {
        if (const auto number = parse_count(text)) text = std::to_string(*number);
        return std::string();
      },
      "");
  for (CLI::Option* option : command.get_options()) {
    const bool of_config = option->get_group().starts_with("Config");
    if (option->get_type_name() == "N" && !of_config) option->transform(count);
  }
}

std::string message_of(const CLI::ParseError& error) {
  constexpr std::string_view kUnread = "Could not convert: ";
  const std::string message = error.what();
  if (!message.starts_with(kUnread)) return message;
  return message.substr(kUnread.size()) + ": allowed: a number; a count may be 128k for 131072";
}

int run_main(int argc, char** argv) {
  CLI::App app{"Frequency-aware sparse attention over a KV cache in tiers.", "fasa"};
  app.formatter(std::make_shared<HelpFormatter>());
  app.set_help_flag("-h,--help", "Print what the command does and its flags");
  app.set_help_all_flag("--help-all", "Print the config's flags too");
  app.set_version_flag(
      "--version", [] { return version_line(); }, "Print version, commit and kernels");
  app.require_subcommand(1);
  std::vector<std::pair<CLI::App*, std::unique_ptr<Command>>> commands;
  std::vector<std::string> names;
  const auto add = [&](std::unique_ptr<Command> command) {
    CLI::App* sub = command->add_to(app);
    sub->allow_extras();
    take_counts(*sub);
    names.push_back(sub->get_name());
    commands.emplace_back(sub, std::move(command));
  };
  add(make_demo_command());
  add(make_generate_command());
  add(make_chat_command());
  add(make_template_command());
  add(make_calibrate_command());
  add(make_info_command());
  add(make_config_command());
  add(make_plan_command());
  add(make_trace_command());
  add(make_profile_command());
  add(make_tune_command());
  add(make_eval_command());
#if defined(FASA_LAB)
  add(make_analyze_command());
#endif
  add(make_tokenize_command());
#if defined(FASA_SERVE)
  add(make_serve_command());
#endif
  add(make_pages_command());
  try {
    app.parse(parsed_arguments(argc, argv));
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);  // --help, --version
    const std::string given = argc > 1 ? argv[1] : "";
    std::string message = message_of(error);
    std::string help = "fasa --help";
    if (std::find(names.begin(), names.end(), given) != names.end()) {
      help = fmt::format("fasa {} --help", given);
    } else if (argc > 1) {
      message = fmt::format("unknown command {}{}", given, nearest_hint(given, names));
    }
    print_error(fmt::format("{}; {} lists what is allowed", message, help));
    return kUsage;
  }
  return finish(run_chosen(commands));
}

}  // namespace
}  // namespace fasa

int main(int argc, char** argv) {
  try {
    return fasa::run_main(argc, argv);
  } catch (const fasa::Error& error) {
    fasa::print_error(error.what());
    return static_cast<int>(error.kind());
  } catch (const std::bad_alloc&) {
    fasa::print_error(
        "the machine has too little memory; shorten the context or lower --max-tokens");
    return static_cast<int>(fasa::ErrorKind::kBudget);
  } catch (const std::exception& error) {
    fasa::print_error(error.what());
    return 1;
  }
}
