// Names of methods in tables of results.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "runtime/config/config.h"

namespace fasa {

// "full", "streaming 128", "fasa 128, 32 FCs int2, sinks 8": kind, tokens attended to, slices, and
// settings that differ from their defaults.
std::string method_name(const Config& config, const Geometry& geometry);

// The settings that determine a config's results: its selection without the path of the FC map,
// "auto" resolved. For full attention only the kind.
nlohmann::json method_setup(const Config& config, const Geometry& geometry);

}  // namespace fasa
