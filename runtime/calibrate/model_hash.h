// A short name for a model's weights and shape.
#pragma once

#include <string>

#include "runtime/calibrate/fc_map.h"

namespace fasa {

// "fnv1a:" and 16 digits: differs between models that an FC map tells apart.
std::string model_hash(const ModelFingerprint& model);

}  // namespace fasa
