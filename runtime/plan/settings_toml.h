// Settings as a config file has them.
#pragma once

#include <string>

#include "runtime/config/config.h"

namespace fasa {

// The preset and the tables [selection], [placement] and [prefetch], with the names and forms of
// the table of options; what is not set is left out.
std::string settings_toml(const Config& config);
// All tables: a file that says what the config says.
std::string config_toml(const Config& config);

}  // namespace fasa
