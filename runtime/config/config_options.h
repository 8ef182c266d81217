// The table of all options. Config files, environment variables and flags (config_load.h), the help
// and docs/configuration.md are generated from it.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>

#include "runtime/config/config.h"

namespace fasa {

struct ConfigOption {
  std::string_view table;  // table in the TOML file; "" = top level
  std::string_view key;    // key in the table
  std::string_view flag;   // "" = the key with dashes; set if the key alone is ambiguous
  std::string_view type;   // SIZE, N, ... in the help
  std::string allowed;     // in words
  std::string_view help;
  std::string_view default_text = "";  // if the default is not constant; "" = get() of a Config
  bool text = false;                   // a flag's text is always a string, never a number or list

  // Sets the value; returns false if it is not allowed. Values have TOML's types: strings,
  // integers, floats, booleans, arrays.
  using Set = std::function<bool(Config&, const nlohmann::json&)>;
  using Get = std::function<nlohmann::json(const Config&)>;
  Set set;
  Get get;  // null: not set

  std::string path() const;           // "selection.fac_tokens"
  std::string flag_name() const;      // "--fac-tokens"
  std::string variable() const;       // "FASA_FAC_TOKENS"
  std::string default_value() const;  // as TOML, or in words
};

std::span<const ConfigOption> config_options();

// nullptr if there is no such option.
const ConfigOption* find_option(std::string_view table, std::string_view key);

// {"preset": ..., "device": {"name": ...}, ...}: all options, null if not set.
nlohmann::json config_to_json(const Config& config);

// The text of docs/configuration.md.
std::string config_reference();

}  // namespace fasa
