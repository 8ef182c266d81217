// What files of their own read of GGUF files for gguf_config.cc, as fields of a config.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "runtime/llm/family/model_family.h"
#include "runtime/llm/gguf/gguf_architecture.h"
#include "runtime/llm/gguf/gguf_keys.h"

namespace fasa {

// Experts, and multi-head latent attention.
void add_gguf_experts(const GgufHeader& header, const GgufKeys& keys,
                      const GgufArchitecture& architecture, nlohmann::json* config);
void add_gguf_latent(const GgufHeader& header, const GgufKeys& keys, nlohmann::json* config);

// Gemma's settings, and what follows from its tensors.
void add_gguf_gemma2(const GgufKeys& keys, nlohmann::json* config);
void add_gguf_gemma3(const GgufKeys& keys, nlohmann::json* config);
// Heads and widths of MLPs may differ by layer.
void add_gguf_gemma4(const GgufHeader& header, const GgufKeys& keys, nlohmann::json* config);

// Which layers have a window: a flag per layer, or the distance between those that have none.
// `usual_window`: where the file has none; 0 = it must have one.
void add_gguf_windows(const GgufKeys& keys, int64_t usual_pattern, nlohmann::json* config,
                      int64_t usual_window = 0);

// Values of an optional tensor of rotation frequencies; empty if the file lacks it.
std::vector<float> gguf_frequency_divisors(const GgufHeader& header, const char* name);
// Adds theta and scaling of a family's rotation, from all keys that llama.cpp's converter writes.
// Throws InputError for a key with an effect that is not supported.
void add_gguf_rope(const GgufHeader& header, const GgufKeys& keys, const ModelFamily& family,
                   nlohmann::json* config);

// Call these after the config was made. Throws InputError for a key of the architecture that no
// part of the config was made from, would change the model's results and is not supported, unless
// its value is the one without effect.
void require_known_keys(const GgufHeader& header, const GgufKeys& keys);
// Keys that neither that list nor the list of keys without effect has.
std::vector<std::string> unknown_keys(const GgufHeader& header, const GgufKeys& keys);

}  // namespace fasa
