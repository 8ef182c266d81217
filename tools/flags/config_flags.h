// Command flags generated from the table of options.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/config/config.h"

namespace fasa {

class ConfigFlags {
 public:
  ConfigFlags() = default;
  ConfigFlags(const ConfigFlags&) = delete;  // the parser holds addresses of its members

  // Adds --config and one flag per option, grouped by table.
  void add_to(CLI::App& command);
  // Call after parsing: merges file, environment and flags over `defaults`. Throws UsageError.
  Config load(const Config& defaults = {}) const { return load_file(file_, defaults); }
  // The same with another file in place of --config.
  Config load_file(const std::string& file, const Config& defaults) const;
  bool has_file() const { return !file_.empty(); }
  // Whether the flag of this option was given, as "selection.kind".
  bool gives(std::string_view option_path) const;

 private:
  std::string file_;
  std::vector<std::string> texts_;     // by index of config_options()
  std::vector<CLI::Option*> options_;  // by index of config_options()
};

// Throws UsageError for unknown arguments, suggesting the nearest flag.
void reject_unknown_arguments(const CLI::App& command);

}  // namespace fasa
