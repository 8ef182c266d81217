// What Gemma's GGUF files say, and what follows from their tensors, as fields of a config.
#pragma once

#include <nlohmann/json.hpp>

#include "runtime/llm/gguf/gguf_keys.h"

namespace fasa {

void add_gguf_gemma2(const GgufKeys& keys, nlohmann::json* config);
void add_gguf_gemma3(const GgufKeys& keys, nlohmann::json* config);
// Heads and widths of MLPs may differ by layer.
void add_gguf_gemma4(const GgufHeader& header, const GgufKeys& keys, nlohmann::json* config);

// Which layers have a window: a flag per layer, or the distance between those that have none.
// `usual_window`: where the file has none; 0 = it must have one.
void add_gguf_windows(const GgufKeys& keys, int64_t usual_pattern, nlohmann::json* config,
                      int64_t usual_window = 0);

}  // namespace fasa
