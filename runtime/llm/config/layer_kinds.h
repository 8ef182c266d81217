// Reads a config's per-layer settings: window and rotation.
#pragma once

#include "runtime/io/json_fields.h"
#include "runtime/llm/config/model_config.h"

namespace fasa {

// Sets windows and layer_rotations. `config` must have its shapes and rotary parameters. Throws
// InputError.
void read_layer_kinds(const JsonFields& fields, ModelConfig* config);

}  // namespace fasa
