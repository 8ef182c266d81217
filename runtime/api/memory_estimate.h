// The memory of a sequence and its steps as a function of the settings. Runtime reserves by it; a
// plan uses it without a runtime.
#pragma once

#include <cstdint>
#include <utility>

#include "runtime/api/kv_metrics.h"
#include "scheduler/step_scratch.h"
#include "scheduler/step_settings.h"

namespace fasa {

// Scratch of a decode step of `count` sequences, the longest with `context` tokens. `access`: over
// the link if any sequence's rows are. `hot_rows`: of each such sequence, here and below.
DecodeShape decode_shape(const StepSettings& settings, int64_t context, int count, RowAccess access,
                         int hot_rows, PredictionScratch predictions = {});
// Scratch of a prefill of `tokens` new tokens after `start` earlier ones.
PrefillShape prefill_shape(int64_t start, int tokens, RowAccess access);
// Both, for one sequence of up to `tokens` tokens in steps of up to `step_tokens`.
std::pair<DecodeShape, PrefillShape> reserved_shapes(const StepSettings& settings, int64_t tokens,
                                                     int step_tokens, RowAccess access,
                                                     int hot_rows,
                                                     PredictionScratch predictions = {});

// For hot_rows = auto: hot rows that a decoding sequence of `tokens` tokens gets out of
// `free_bytes` of device memory, in place of its reserved ones, once everything else is allocated.
// Returns 0 if they would be too few to help.
int extra_hot_rows(const StepSettings& settings, int hot_rows, int64_t tokens, uint64_t free_bytes);

// Bytes that reserve() of an empty sequence takes. `rollback_tokens`: the rollback window.
KvMemory estimate_memory(const StepSettings& settings, int hot_rows, int64_t tokens,
                         int step_tokens, PredictionScratch predictions = {},
                         int64_t rollback_tokens = -1);

}  // namespace fasa
