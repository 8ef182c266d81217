// Settings as the text of a config file.
#pragma once

#include <string>

#include "runtime/config/config.h"

namespace fasa {

// The preset and the tables [selection], [placement] and [prefetch]; options that are not set are
// omitted.
std::string settings_toml(const Config& config);
// Those, and the tables [device], [memory] and [weights] that differ from their defaults.
std::string plan_toml(const Config& config);
// All tables, equivalent to the config.
std::string config_toml(const Config& config);

}  // namespace fasa
