// The memory of a sequence and its steps as a function of the settings. Runtime reserves by it; a
// plan uses it without a runtime. `hot_rows`: of each sequence with rows over the link.
#pragma once

#include <cstdint>

#include "runtime/api/kv_metrics.h"
#include "scheduler/step_settings.h"

namespace fasa {

// For hot_rows = auto: hot rows that a decoding sequence of `tokens` tokens gets out of
// `free_bytes` of device memory, in place of its reserved ones, once everything else is allocated.
// Returns 0 if they would be too few to help.
int extra_hot_rows(const StepSettings& settings, int hot_rows, int64_t tokens, uint64_t free_bytes);

// Bytes that reserve() of an empty sequence takes. `rollback_tokens`: the rollback window.
KvMemory estimate_memory(const StepSettings& settings, int hot_rows, int64_t tokens,
                         int step_tokens, PredictionScratch predictions = {},
                         int64_t rollback_tokens = -1);

}  // namespace fasa
