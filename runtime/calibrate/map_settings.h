// Settings taken from the FC map: selection.slice = map.
#pragma once

#include <string>

#include "runtime/calibrate/fc_map.h"
#include "runtime/config/config.h"

namespace fasa {

// Whether a setting of the config is taken from a map.
bool asks_map(const Config& config);

// Fills in those settings; an explicit slice_dtype, tip_chunks or fine_chunks is kept. Throws
// InputError naming `path` if the map lacks a setting.
void take_from_map(const FcMap& map, const std::string& path, Config& config);

}  // namespace fasa
