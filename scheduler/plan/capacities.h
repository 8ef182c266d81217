// Sizes of a step's scratch memory, without the memory. Scratch only grows; larger capacities cover
// all smaller ones.
#pragma once

#include <cstdint>
#include <vector>

#include "scheduler/step_settings.h"

namespace fasa {

struct DecodeCapacities {
  int count = 0;                         // sequences
  RowAccess access = RowAccess::kLocal;  // over the link if any sequence's is
  int hot_rows = 0;                      // of each sequence over the link, per head
  int selected_capacity = 0;             // tokens of the largest set; 0: no layer selects
  int select_pages = 0;                  // of visible tokens, of layers that select
  int low_bit_capacity = 0;              // tokens of the largest low-bit set
  int low_bit_blocks = 0;                // of the largest low-bit set attended to by page
  int dense_tokens = 0;                  // per wave, of attention to all tokens; 0: none
  int window_tokens = 0;                 // the same for layers with window rows
  // Predictions, if any: tokens of the largest predicted set or list, and the number of sets in
  // flight or of lists, one a layer.
  bool predictions = false;
  int prediction_capacity = 0;
  int prediction_buffers = 0;

  bool operator==(const DecodeCapacities&) const = default;
  bool covers(const DecodeCapacities& other) const;
  DecodeCapacities joined(const DecodeCapacities& other) const;
  // Adds all sizes to a key of steps, see StepKey.
  void append_key(std::vector<uint64_t>& key) const;

  // True if some misses find no hot slot.
  bool needs_fetch_buffer() const {
    return access == RowAccess::kOverLink && hot_rows < selected_capacity;
  }
  int wave() const;  // set entries resolved, fetched and attended to at a time
  int dense_wave(const StepSettings& settings) const;  // tokens, of attention to all tokens
  // Maximum rows per head that a layer may prefetch: the hot rows that no set occupies. Computed
  // rather than stored, because longer sets leave fewer.
  int prediction_rows() const;
};

// Prefill with rows over the link needs a write-back buffer and memory to stream the past through.
struct PrefillCapacities {
  int pages = 0;       // in the write-back buffer, all prefill sequences
  int tokens = 0;      // new tokens, all prefill sequences
  int past_pages = 0;  // the longest past, in pages

  bool operator==(const PrefillCapacities&) const = default;
  bool covers(const PrefillCapacities& other) const;
  PrefillCapacities joined(const PrefillCapacities& other) const;
};

struct Capacities {
  DecodeCapacities decode;
  PrefillCapacities prefill;

  bool operator==(const Capacities&) const = default;
};

// Steps to have scratch for.
struct Load {
  int64_t context = 0;                   // tokens of the longest sequence
  int count = 1;                         // sequences that decode
  RowAccess access = RowAccess::kLocal;  // over the link if any sequence's rows are
  int hot_rows = 0;                      // of each sequence over the link
  PredictionScratch predictions = {};
  int step_tokens = 1;  // > 1: prefills of up to that many tokens, which begin and end anywhere
};

// Covers all shorter contexts.
Capacities capacities_for(const StepSettings& settings, const Load& load);
// The capacities of one prefill of `tokens` new tokens after `start` earlier ones.
PrefillCapacities prefill_capacities(int64_t start, int tokens, RowAccess access);
// Tokens of the largest set in a context.
int largest_set(const StepSettings& settings, int64_t context);

// Pages of the write-back buffer that `tokens` new tokens after `start` earlier ones take.
inline int write_back_pages_of(int64_t start, int tokens) {
  return pages_of(start % kPageTokens + tokens);
}

}  // namespace fasa
