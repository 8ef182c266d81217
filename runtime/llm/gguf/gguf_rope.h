// Rotation frequencies of a GGUF file.
#pragma once

#include <nlohmann/json.hpp>
#include <vector>

#include "runtime/llm/family/model_family.h"
#include "runtime/llm/gguf/gguf_keys.h"

namespace fasa {

// Values of an optional tensor; empty if the file lacks it.
std::vector<float> gguf_frequency_divisors(const GgufHeader& header, const char* name);

// Adds theta and scaling of a family's rotation to a config, from all keys that llama.cpp's
// converter writes. Throws InputError for a key with an effect that is not supported.
void add_gguf_rope(const GgufHeader& header, const GgufKeys& keys, const ModelFamily& family,
                   nlohmann::json* config);

}  // namespace fasa
