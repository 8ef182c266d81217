// A context that nobody computed, for measuring what steps behind it cost.
#pragma once

#include <cstdint>

#include "runtime/api/sequences/runtime.h"
#include "runtime/llm/model.h"

namespace fasa {

inline constexpr int kRandomChunk = 512;

// Appends `tokens` tokens (0: nothing happens) to the sequence: keys and values of noise, in chunks of
// kRandomChunk. Room for them is reserved by the caller. Throws BudgetError, DeviceError.
void append_random_context(Model& model, Runtime& runtime, SequenceId sequence, int64_t tokens);
// Device memory that it takes meanwhile.
uint64_t random_context_bytes(const ModelConfig& config, std::optional<DType> dtype);

}  // namespace fasa
