// A short hash of a model's weights and shape.
#pragma once

#include <string>

#include "runtime/calibrate/fc_map.h"

namespace fasa {

// "fnv1a:" and 16 digits. Differs between models with different fingerprints.
std::string model_hash(const ModelFingerprint& model);

}  // namespace fasa
