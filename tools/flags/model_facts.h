// What a model's files say about it, for clients of the server.
#pragma once

#include <string>

#include "bindings/http/service_options.h"
#include "runtime/llm/config/model_config.h"

namespace fasa {

// Throws InputError for files that are missing or broken.
serve::ModelFacts model_facts(const std::string& path, const ModelConfig& config);

}  // namespace fasa
