// What GGUF files say of experts and of multi-head latent attention, as fields of a config.
#pragma once

#include <nlohmann/json.hpp>

#include "runtime/llm/gguf/gguf_architecture.h"
#include "runtime/llm/gguf/gguf_keys.h"

namespace fasa {

void add_gguf_experts(const GgufHeader& header, const GgufKeys& keys,
                      const GgufArchitecture& architecture, nlohmann::json* config);
void add_gguf_latent(const GgufHeader& header, const GgufKeys& keys, nlohmann::json* config);

}  // namespace fasa
