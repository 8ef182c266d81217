// A model folder's config.json as plans take it.
#pragma once

#include <string>

#include "runtime/llm/model_config.h"
#include "runtime/plan/model_shape.h"

namespace fasa {

ModelShape model_shape(const ModelConfig& config, const std::string& name);

}  // namespace fasa
