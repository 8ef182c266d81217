// The memory of a sequence and its steps as a function of the settings: what Runtime reserves, and
// what a plan says before there is a runtime.
#pragma once

#include <cstdint>
#include <utility>

#include "runtime/api/kv_metrics.h"
#include "scheduler/step_scratch.h"
#include "scheduler/step_settings.h"

namespace fasa {

// Scratch that a decode step of `count` sequences needs, the longest `context` tokens long.
DecodeShape decode_shape(const StepSettings& settings, int64_t context, int count,
                         PredictionScratch predictions = {});
// ... and a prefill of `tokens` new tokens behind `start` others.
PrefillShape prefill_shape(const StepSettings& settings, int64_t start, int tokens);
// Both for one sequence of up to `tokens` tokens in steps of up to `step_tokens`.
std::pair<DecodeShape, PrefillShape> reserved_shapes(const StepSettings& settings, int64_t tokens,
                                                     int step_tokens,
                                                     PredictionScratch predictions = {});

// hot_rows = auto: as many as a decoding sequence of so many tokens takes of `free_bytes` of the
// device's memory, when all that it needs is there, in place of those that it was promised; 0 where
// that would not be worth its while.
int extra_hot_rows(const StepSettings& settings, int64_t tokens, uint64_t free_bytes);

// What reserve() of an empty sequence takes. `rollback_tokens`: the rollback window.
KvMemory estimate_memory(const StepSettings& settings, int64_t tokens, int step_tokens,
                         PredictionScratch predictions = {}, int64_t rollback_tokens = -1);

}  // namespace fasa
