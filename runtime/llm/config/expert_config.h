// Reads a config.json's mixture-of-experts keys.
#pragma once

#include "runtime/io/json_fields.h"
#include "runtime/llm/config/model_config.h"

namespace fasa {

// `config` must have family, layers and intermediate set. Throws InputError.
void read_experts(const JsonFields& fields, ModelConfig* config);

}  // namespace fasa
