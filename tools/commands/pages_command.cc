// fasa pages: writes the manual pages and shell completions, from the flags that this program has.
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <filesystem>

#include "runtime/base/error.h"
#include "runtime/io/output_file.h"
#include "tools/commands/command.h"
#include "tools/flags/add_option.h"
#include "tools/flags/config_flags.h"
#include "tools/flags/option_list.h"

namespace fasa {
namespace {

namespace fs = std::filesystem;

// In a manual page a backslash and a dash are written with a backslash before them.
std::string roff(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '\\' || c == '-') out += '\\';
    out += c;
  }
  if (out.starts_with('.') || out.starts_with('\'')) out.insert(0, "\\&");
  return out;
}

std::string page_head(const std::string& title, const std::string& description) {
  std::string upper = title;
  std::transform(upper.begin(), upper.end(), upper.begin(),
                 [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  return fmt::format(".TH {} 1 \"\" \"fasa {}\"\n.SH NAME\n{} \\- {}\n", roff(upper), FASA_VERSION,
                     roff(title), roff(description));
}

std::string command_page(const CLI::App& command) {
  const std::string name = command.get_name();
  std::string page = page_head("fasa-" + name, command.get_description());
  page += fmt::format(".SH SYNOPSIS\n.B fasa {}", name);
  const auto groups = option_groups(command);
  std::string options;
  for (const OptionGroup& group : groups) {
    options += fmt::format(".SH {}\n", roff(group.name));
    for (const ListedOption& option : group.options) {
      if (option.positional) page += " " + option.names.front();
      options += fmt::format(".TP\n.B {}", roff(fmt::format("{}", fmt::join(option.names, ", "))));
      if (!option.positional && !option.type.empty()) options += " " + roff(option.type);
      options += "\n" + roff(option.text) + "\n";
    }
  }
  page += " [OPTIONS]\n" + options;
  const auto examples = examples_of(name);
  if (!examples.empty()) page += ".SH EXAMPLES\n.nf\n";
  for (const std::string& line : examples) page += roff(line) + "\n";
  if (!examples.empty()) page += ".fi\n";
  return page + ".SH SEE ALSO\n.BR fasa (1)\n";
}

std::string main_page(const CLI::App& app) {
  std::string page = page_head("fasa", app.get_description());
  page += ".SH SYNOPSIS\n.B fasa\nCOMMAND [OPTIONS]\n.SH COMMANDS\n";
  for (const CLI::App* command : subcommands(app)) {
    page += fmt::format(".TP\n.BR fasa\\-{} (1)\n{}\n", roff(command->get_name()),
                        roff(command->get_description()));
  }
  return page;
}

std::vector<std::string> long_names(const CLI::App& command) {
  std::vector<std::string> names;
  for (const OptionGroup& group : option_groups(command)) {
    for (const ListedOption& option : group.options) {
      if (!option.positional) names.push_back(option.names.back());
    }
  }
  return names;
}

std::string bash_completion(const CLI::App& app) {
  std::string commands;
  std::string cases;
  for (const CLI::App* command : subcommands(app)) {
    commands += command->get_name() + " ";
    cases += fmt::format("    {}) words=\"{}\" ;;\n", command->get_name(),
                         fmt::join(long_names(*command), " "));
  }
  return fmt::format(
      "# bash completion of fasa\n_fasa() {{\n  local words now=\"${{COMP_WORDS[COMP_CWORD]}}\"\n"
      "  case \"${{COMP_WORDS[1]}}\" in\n{}    *) words=\"help {}\" ;;\n  esac\n"
      "  [[ $COMP_CWORD -gt 1 ]] || words=\"help {}\"\n"
      "  COMPREPLY=($(compgen -W \"$words\" -- \"$now\"))\n}}\n"
      "complete -o default -F _fasa fasa\n",
      cases, commands, commands);
}

class PagesCommand final : public Command {
 public:
  CLI::App* add_to(CLI::App& app) override {
    app_ = &app;
    command_ = app.add_subcommand("pages", "Write the manual pages and shell completions");
    add_option(*command_, "folder", folder_, "DIR", "Folder that receives man1 and completions")
        ->required();
    return command_;
  }

  int run() override {
    reject_unknown_arguments(*command_);
    const fs::path folder = folder_;
    std::error_code error;
    for (const char* part : {"man1", "completions"}) {
      fs::create_directories(folder / part, error);
      if (error) {
        throw UsageError(fmt::format("{}: the folder cannot be made ({})", (folder / part).string(),
                                     error.message()));
      }
    }
    const auto write = [&](const std::string& name, const std::string& text) {
      write_file_atomically((folder / name).string(), text);
    };
    write("man1/fasa.1", main_page(*app_));
    for (const CLI::App* command : subcommands(*app_)) {
      write(fmt::format("man1/fasa-{}.1", command->get_name()), command_page(*command));
    }
    write("completions/fasa.bash", bash_completion(*app_));
    return 0;
  }

 private:
  const CLI::App* app_ = nullptr;
  CLI::App* command_ = nullptr;
  std::string folder_;
};

}  // namespace

std::unique_ptr<Command> make_pages_command() { return std::make_unique<PagesCommand>(); }

}  // namespace fasa
