// Parts of the configs of Gemma models.
#pragma once

#include <string>

#include "runtime/io/json_fields.h"
#include "runtime/llm/config/model_config.h"

namespace fasa {

// Missing keys take transformers' defaults; null means none.
void read_gemma2(const JsonFields& fields, ModelConfig* config);
void read_gemma3(const JsonFields& fields);  // only checks
// Call after read_layer_kinds.
void read_gemma4(const JsonFields& fields, const std::string& name, ModelConfig* config);

}  // namespace fasa
