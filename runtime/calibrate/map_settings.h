// Settings that a config leaves to the FC map: selection.slice = map, selection.layer_budget = map.
#pragma once

#include <string>

#include "runtime/calibrate/fc_map.h"
#include "runtime/config/config.h"

namespace fasa {

// Whether the config leaves anything to a map.
bool asks_map(const Config& config);

// Puts in what is asked for; a slice_dtype or tip_chunks that the config has stays. Throws
// InputError naming `path` where the map does not say.
void take_from_map(const FcMap& map, const std::string& path, Config& config);

}  // namespace fasa
