// Layers of experts in a config.json.
#pragma once

#include "runtime/io/json_fields.h"
#include "runtime/llm/model_config.h"

namespace fasa {

// `config` with family, layers and intermediate set. Throws InputError.
void read_experts(const JsonFields& fields, ModelConfig* config);

}  // namespace fasa
