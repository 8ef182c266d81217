// Loads a Config from all sources. Later ones override: default < preset < file < environment <
// flag.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/config/config.h"
#include "runtime/config/config_options.h"

namespace fasa {

struct GivenFlag {
  const ConfigOption* option = nullptr;
  std::string text;
};

// A value given by a caller in code, in TOML's types.
struct GivenValue {
  const ConfigOption* option = nullptr;
  nlohmann::json value;
};

struct ConfigSources {
  std::string file = {};                                // path of a TOML file; "" = none
  std::map<std::string, std::string> environment = {};  // FASA_* variables
  std::vector<GivenFlag> flags = {};
  Config defaults = {};  // a command's own defaults
  // Text of another file, read after `file`, and its name in messages.
  std::string toml = {};
  std::string toml_name = {};
  std::vector<GivenValue> values = {};  // override everything else
};

// Validated (Config::validate). Throws UsageError naming the source, the key, the given and the
// allowed values. For an unknown key, the error names the nearest key, or the new name of a renamed
// key. An unknown FASA_* variable is a warning, but an error if it is a renamed option.
Config load_config(const ConfigSources& sources);

// The FASA_* variables of this process.
std::map<std::string, std::string> fasa_environment();

}  // namespace fasa
