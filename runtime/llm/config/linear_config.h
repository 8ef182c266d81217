// Layers with linear attention: which they are, and their shape.
#pragma once

#include "runtime/io/json_fields.h"
#include "runtime/llm/config/model_config.h"

namespace fasa {

// Does nothing for families without such layers.
void read_linear(const JsonFields& fields, ModelConfig* config);

}  // namespace fasa
