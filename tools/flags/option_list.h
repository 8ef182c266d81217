// The flags of a command as help texts, manual pages and shell completions show them.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace fasa {

struct ListedOption {
  std::vector<std::string> names;  // "-h", "--help"; a positional: its name
  std::string type;                // "FILE"; "" = a switch
  std::string text;                // one paragraph, with the default
  bool positional = false;
};

struct OptionGroup {
  std::string name;  // "Options", "Config, [selection]"
  std::vector<ListedOption> options;
  bool of_config() const;
};

// Groups of a command, in the order of their definition; positionals first.
std::vector<OptionGroup> option_groups(const CLI::App& command);

// Visible subcommands.
std::vector<const CLI::App*> subcommands(const CLI::App& app);

// Command lines that show a typical use; empty if there are none.
std::vector<std::string> examples_of(const std::string& command);

}  // namespace fasa
