// Configs and FC maps.
#include <fmt/format.h>

#include <vector>

#include "bindings/c/handles.h"
#include "bindings/c/status.h"
#include "runtime/config/config_load.h"
#include "runtime/config/config_options.h"
#include "runtime/config/renamed_keys.h"
#include "runtime/io/nearest.h"

namespace fasa::c {
namespace {

const ConfigOption& option_named(const std::string& name) {
  std::vector<std::string> names;
  for (const ConfigOption& option : config_options()) {
    if (option.path() == name || option.key == name) return option;
    names.emplace_back(option.key);
  }
  std::string hint = renamed_hint(name);
  if (hint.empty()) hint = nearest_hint(name, names);
  throw UsageError(
      fmt::format("unknown key {}{}; docs/configuration.md lists all keys", name, hint));
}

Config load(const fasa_config_sources& given) {
  ConfigSources sources;
  if (given.file != nullptr) sources.file = given.file;
  if (given.toml != nullptr) sources.toml = given.toml;
  sources.toml_name = given.toml_name != nullptr ? given.toml_name : "config";
  if (given.use_environment != 0) sources.environment = fasa_environment();
  for (size_t i = 0; i < given.option_count; ++i) {
    const std::string name = &required(given.options[i], "an option's name");
    const char* text = &required(given.values[i], "an option's value");
    sources.flags.push_back({&option_named(name), text});
  }
  return load_config(sources);
}

}  // namespace
}  // namespace fasa::c

using fasa::c::guarded;
using fasa::c::required;

fasa_status fasa_config_create(const fasa_config_sources* sources, fasa_config** config) {
  return guarded([&] {
    fasa_config*& result = required(config, "config");
    fasa_config_sources given = FASA_CONFIG_SOURCES_INIT;
    if (sources != nullptr) given = fasa::c::options_of(sources, "sources");
    if (given.option_count > 0) {
      required(given.options, "options");
      required(given.values, "values");
    }
    result = new fasa_config{fasa::c::load(given), ""};
  });
}

void fasa_config_destroy(fasa_config* config) { delete config; }

fasa_status fasa_config_json(const fasa_config* config, const char** json) {
  return guarded([&] {
    // Built at most once. The cast is safe: one thread at a time uses a config.
    auto& from = const_cast<fasa_config&>(required(config, "config"));
    const char*& result = required(json, "json");
    if (from.json.empty()) from.json = fasa::config_to_json(from.config).dump(2);
    result = from.json.c_str();
  });
}

fasa_status fasa_fc_map_load(const char* path, fasa_fc_map** map) {
  return guarded([&] {
    fasa_fc_map*& result = required(map, "map");
    const std::string name = &required(path, "path");
    result = new fasa_fc_map{fasa::FcMap::load(name), name};
  });
}

void fasa_fc_map_destroy(fasa_fc_map* map) { delete map; }
