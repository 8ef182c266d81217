// Rotation frequencies of a GGUF file.
#pragma once

#include <nlohmann/json.hpp>
#include <vector>

#include "runtime/llm/gguf/gguf_keys.h"

namespace fasa {

// Values of an optional tensor; empty if the file lacks it.
std::vector<float> gguf_frequency_divisors(const GgufHeader& header, const char* name);

// The config's rope_scaling; null: none. Throws InputError.
nlohmann::json gguf_rope_scaling(const GgufHeader& header, const GgufKeys& keys, double theta);

}  // namespace fasa
