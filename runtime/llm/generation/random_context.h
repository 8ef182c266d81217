// Fills a sequence with random keys and values, to measure the steps after it.
#pragma once

#include <cstdint>

#include "runtime/api/sequences/runtime.h"
#include "runtime/llm/compute/model.h"

namespace fasa {

inline constexpr int kRandomChunk = 512;

// Appends `tokens` tokens of random keys and values to the sequence, in chunks of kRandomChunk; 0:
// does nothing. The caller reserves memory for them. Throws BudgetError, DeviceError.
void append_random_context(Model& model, Runtime& runtime, SequenceId sequence, int64_t tokens);
// Device memory that append_random_context() uses while it runs.
uint64_t random_context_bytes(const ModelConfig& config, std::optional<DType> dtype);

}  // namespace fasa
