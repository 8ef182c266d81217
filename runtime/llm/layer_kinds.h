// What a config says of each layer by itself: its window, its rotation.
#pragma once

#include "runtime/io/json_fields.h"
#include "runtime/llm/model_config.h"

namespace fasa {

// Sets windows and layer_rotations of a config whose shapes and rotary parameters are read. Throws
// InputError.
void read_layer_kinds(const JsonFields& fields, ModelConfig* config);

}  // namespace fasa
