// The one table of options. From it come the reader of config files, environment variables and
// flags (config_load.h), the help and docs/configuration.md.
#pragma once

#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>

#include "runtime/config/config.h"

namespace fasa {

struct ConfigOption {
  std::string_view table;    // of the TOML file; "" = top level
  std::string_view key;      // in its table
  std::string_view flag;     // "" = the key, dashed; given where the key alone would not say enough
  std::string_view type;     // SIZE, N, ... in the help
  std::string_view allowed;  // in words
  std::string_view help;
  std::string_view default_text = "";  // where the default is no constant; "" = get() of a Config
  bool text = false;                   // a flag's text is the value itself, never a number or list

  // Sets the value; false when it is none of the allowed. Values are as TOML has them: strings,
  // integers, floats, booleans, arrays.
  bool (*set)(Config&, const nlohmann::json&);
  nlohmann::json (*get)(const Config&);  // null: not set

  std::string path() const;       // "selection.fac_tokens"
  std::string flag_name() const;  // "--fac-tokens"
  std::string variable() const;   // "FASA_FAC_TOKENS"
};

std::span<const ConfigOption> config_options();

// nullptr: no such option.
const ConfigOption* find_option(std::string_view table, std::string_view key);

// {"preset": ..., "device": {"name": ...}, ...}: every option, null where nothing is set.
nlohmann::json config_to_json(const Config& config);

// docs/configuration.md, whole.
std::string config_reference();

}  // namespace fasa
