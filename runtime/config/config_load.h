// A Config from all its sources. Later ones win: default < preset < file < environment < flag.
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

// A value as TOML has them, given by a caller in code.
struct GivenValue {
  const ConfigOption* option = nullptr;
  nlohmann::json value;
};

struct ConfigSources {
  std::string file = {};                                // path of a TOML file; "" = none
  std::map<std::string, std::string> environment = {};  // FASA_* variables
  std::vector<GivenFlag> flags = {};
  Config defaults = {};  // what a command takes where no source says otherwise
  // The text of a file, read after `file`, and what stands for it in messages.
  std::string toml = {};
  std::string toml_name = {};
  std::vector<GivenValue> values = {};  // over everything else
};

// Validated (Config::validate). Throws UsageError with the place, the key, what was given and what
// is allowed; the error for an unknown key names the nearest one, or the new name of a renamed key.
// A variable that is no option is a warning, but an error where it was one.
Config load_config(const ConfigSources& sources);

// The same for the text of a file alone; `name` stands for the file in messages.
Config parse_config(std::string_view toml, const std::string& name);

// The FASA_* variables of this process.
std::map<std::string, std::string> fasa_environment();

}  // namespace fasa
