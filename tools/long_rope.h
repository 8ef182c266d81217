// What a command says of longrope, which has two sets of factors (rope_parameters.h).
#pragma once

#include <string_view>

#include "runtime/llm/model_config.h"

namespace fasa {

// Says on stderr which set a model took. Nothing for models with one set. `context`: what bounds
// the context, such as "--max-context".
void print_long_rope(const ModelConfig& config, std::string_view context);

}  // namespace fasa
