// A model folder's config.json as plans take it, and the other way round.
#pragma once

#include <string>

#include "runtime/catalog/model_shape.h"
#include "runtime/llm/model_config.h"

namespace fasa {

ModelShape model_shape(const ModelConfig& config, const std::string& name);

// A llama of that shape, stored in bf16, that never ends a text.
ModelConfig llama_config(const ModelShape& shape);

}  // namespace fasa
