// How a config's way of selecting is called in tables of results.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "runtime/config/config.h"

namespace fasa {

// "full", "streaming 128", "fasa 128, 32 FCs int2, sinks 8": kind, tokens attended to, slices, and
// what is not as by default.
std::string method_name(const Config& config, const Geometry& geometry);

// What the results of a config depend on: its selection, low-bit tokens as a number, but for where
// the FC map lies; of full attention its kind alone.
nlohmann::json method_setup(const Config& config, const Geometry& geometry);

}  // namespace fasa
