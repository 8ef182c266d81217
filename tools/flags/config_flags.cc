#include "tools/flags/config_flags.h"

#include <fmt/format.h>

#include "runtime/base/error.h"
#include "runtime/config/config_load.h"
#include "runtime/config/config_options.h"
#include "runtime/config/renamed_keys.h"
#include "runtime/io/nearest.h"
#include "tools/flags/add_option.h"

namespace fasa {

void ConfigFlags::add_to(CLI::App& command) {
  add_option(command, "--config", file_, "FILE.toml",
             "Config file; docs/configuration.md lists the keys");
  const auto options = config_options();
  texts_.resize(options.size());
  for (size_t i = 0; i < options.size(); ++i) {
    const ConfigOption& option = options[i];
    const std::string group =
        option.table.empty() ? "Config" : fmt::format("Config, [{}]", option.table);
    options_.push_back(add_option(command, option.flag_name(), texts_[i], std::string(option.type),
                                  std::string(option.help))
                           ->default_str(option.default_value())
                           ->group(group));
  }
}

bool ConfigFlags::gives(std::string_view option_path) const {
  const auto options = config_options();
  for (size_t i = 0; i < options_.size(); ++i) {
    if (options[i].path() == option_path) return options_[i]->count() > 0;
  }
  return false;
}

Config ConfigFlags::load_file(const std::string& file, const Config& defaults) const {
  ConfigSources sources{
      .file = file, .environment = fasa_environment(), .flags = {}, .defaults = defaults};
  for (size_t i = 0; i < options_.size(); ++i) {
    if (options_[i]->count() > 0) sources.flags.push_back({&config_options()[i], texts_[i]});
  }
  return load_config(sources);
}

void reject_unknown_arguments(const CLI::App& command) {
  const auto extras = command.remaining();
  if (extras.empty()) return;
  const std::string flag = extras.front().substr(0, extras.front().find('='));
  std::vector<std::string> names;
  for (const CLI::Option* option : command.get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  }
  std::string hint = renamed_hint(flag);
  if (hint.empty()) hint = nearest_hint(flag, names);
  throw UsageError(fmt::format("unknown argument {}{}; fasa {} --help lists all arguments", flag,
                               hint, command.get_name()));
}

}  // namespace fasa
