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

bool names_a_file(const ListedOption& option) {
  return option.type.find("FILE") != std::string::npos || option.type == "DIR" ||
         option.type == "PATH";
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

// Text within single quotes of a shell, short enough for a line of completions.
std::string short_text(const std::string& text) {
  std::string out = text.substr(0, text.find_first_of(".;:("));
  std::erase_if(out, [](char c) { return c == '\'' || c == '[' || c == ']' || c == '\\'; });
  return out;
}

std::string zsh_completion(const CLI::App& app) {
  std::string commands;
  std::string cases;
  for (const CLI::App* command : subcommands(app)) {
    commands +=
        fmt::format("    '{}:{}'\n", command->get_name(), short_text(command->get_description()));
    cases += fmt::format("    {})\n      _arguments", command->get_name());
    for (const OptionGroup& group : option_groups(*command)) {
      for (const ListedOption& option : group.options) {
        if (option.positional) continue;
        cases += fmt::format(" \\\n        '{}[{}]", option.names.back(), short_text(option.text));
        if (!option.type.empty()) {
          cases +=
              fmt::format(":{}:{}", short_text(option.type), names_a_file(option) ? "_files" : "");
        }
        cases += "'";
      }
    }
    cases += "\n      ;;\n";
  }
  return fmt::format(
      "#compdef fasa\nlocal -a commands\ncommands=(\n{})\nif (( CURRENT == 2 )); then\n"
      "  _describe 'command' commands\nelse\n  local command=$words[2]\n  shift words\n"
      "  (( CURRENT-- ))\n  case $command in\n{}  esac\nfi\n",
      commands, cases);
}

std::string fish_completion(const CLI::App& app) {
  std::string out = "# fish completion of fasa\n";
  for (const CLI::App* command : subcommands(app)) {
    const std::string name = command->get_name();
    out += fmt::format("complete -c fasa -n __fish_use_subcommand -f -a {} -d '{}'\n", name,
                       short_text(command->get_description()));
    for (const OptionGroup& group : option_groups(*command)) {
      for (const ListedOption& option : group.options) {
        if (option.positional) continue;
        out += fmt::format("complete -c fasa -n '__fish_seen_subcommand_from {}' -l {}{} -d '{}'\n",
                           name, option.names.back().substr(2),
                           option.type.empty()    ? ""
                           : names_a_file(option) ? " -r -F"
                                                  : " -x",
                           short_text(option.text));
      }
    }
  }
  return out;
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
    write("completions/_fasa", zsh_completion(*app_));
    write("completions/fasa.fish", fish_completion(*app_));
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
