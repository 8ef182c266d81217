// The prefill chunk that a model's device has memory for.
#pragma once

#include <cstdint>

#include "runtime/api/prefill_chunk.h"
#include "runtime/llm/compute/model.h"

namespace fasa {

// For a sequence of `context` tokens, of which `prompt` are prefilled: the largest chunk whose
// activations and scratch fit beside the sequence into what is free now. On the processor, where
// rows are read in place, the least.
int automatic_chunk(const Model& model, const Runtime& runtime, int64_t context, int64_t prompt,
                    int most = kMaxPrefillChunk);

}  // namespace fasa
