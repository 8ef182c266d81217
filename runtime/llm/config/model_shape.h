// Converts between a model's config and the shape that plans use.
#pragma once

#include <string>

#include "runtime/catalog/model_shape.h"
#include "runtime/llm/config/model_config.h"

namespace fasa {

ModelShape model_shape(const ModelConfig& config, const std::string& name);

// A llama of this shape, stored in bf16, without end-of-sequence ids.
ModelConfig llama_config(const ModelShape& shape);

}  // namespace fasa
