// Programs of benchmarks: flags of the options of [weights], and --threads; how errors end them.
#pragma once

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <list>
#include <string>
#include <utility>

#include "runtime/base/error.h"
#include "runtime/config/config_load.h"
#include "runtime/config/config_options.h"

namespace fasa::bench {

class ConfigFlags {
 public:
  explicit ConfigFlags(CLI::App& app) {
    for (const ConfigOption& option : config_options()) {
      if (option.table != "weights" && option.path() != "device.threads") continue;
      given_.emplace_back(&option, "");
      app.add_option(option.flag_name(), given_.back().second);
    }
  }
  ConfigFlags(const ConfigFlags&) = delete;  // the app refers to it

  // After parsing. Throws UsageError.
  Config config() const {
    ConfigSources sources;
    for (const auto& [option, text] : given_) {
      if (!text.empty()) sources.flags.push_back({option, text});
    }
    return load_config(sources);
  }

 private:
  std::list<std::pair<const ConfigOption*, std::string>> given_;
};

// Runs a program's `body(argc, argv)`; prints an error, whose kind is the exit code then.
inline int run_program(const char* name, int (*body)(int, char**), int argc, char** argv) {
  try {
    return body(argc, argv);
  } catch (const Error& error) {
    fmt::print(stderr, "{}: {}\n", name, error.what());
    return static_cast<int>(error.kind());
  }
}

}  // namespace fasa::bench
