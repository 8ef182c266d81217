// The scratch memory of a step on the device: token sets, row addresses, partial softmaxes, fetch
// buffers. Allocated by begin_step; contents do not outlive the step.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/params.h"
#include "offload/device.h"
#include "offload/step_buffer.h"
#include "scheduler/plan/capacities.h"
#include "scheduler/step_settings.h"

namespace fasa {

// Device pointers; [.] as in params.h.
struct DecodeScratch {
  int selected_capacity = 0;
  int wave = 0;        // set entries resolved, fetched and attended at a time
  int dense_wave = 0;  // tokens per wave of dense attention
  int32_t* sets = nullptr;
  int32_t* selected_sizes = nullptr;
  LowBitSet low_bit;
  LowBitPages low_bit_pages;
  std::byte* select = nullptr;  // selects work in it, for sets and predictions in turn
  int select_pages = 0;         // for which it has room
  const std::byte** rows = nullptr;
  uint8_t* tile_ready = nullptr;
  FetchItem* fetches = nullptr;
  int32_t* fetch_counts = nullptr;
  float* partials = nullptr;
  float* low_bit_partials = nullptr;
  float* state = nullptr;
  std::byte* fetch_buffer = nullptr;  // rows without a hot slot; null: all find one
  // [dense_wave / kPageTokens + 1] pages of one layer: a window may begin inside a page.
  std::byte* pages[2] = {};
  int prediction_rows = 0;
  int prediction_capacity = 0;
  int prediction_buffers = 0;
  int64_t heads = 0;  // count * kv_heads, the stride of what follows
  // Sets, or lists of runners-up, which outlive the step: [prediction_buffers, count, kv_heads,
  // prediction_capacity]
  int32_t* prediction_sets = nullptr;
  int32_t* prediction_sizes = nullptr;      // [prediction_buffers, count, kv_heads]
  FetchItem* prediction_fetches = nullptr;  // [streams, count, kv_heads, prediction_rows]
  int32_t* prediction_counts = nullptr;     // [streams, count, kv_heads]

  int32_t* prediction_sets_of(int layer) const {
    return prediction_sets + layer % prediction_buffers * heads * prediction_capacity;
  }
  int32_t* prediction_sizes_of(int layer) const {
    return prediction_sizes + layer % prediction_buffers * heads;
  }
  FetchItem* prediction_fetches_of(size_t stream) const {
    return prediction_fetches + static_cast<int64_t>(stream) * heads * prediction_rows;
  }
  int32_t* prediction_counts_of(size_t stream) const {
    return prediction_counts + static_cast<int64_t>(stream) * heads;
  }
};

struct PrefillScratch {
  int wave_pages = 0;  // of the past, in each half of the double buffer
  // The even layers' buffer, and the offset in bytes of the odd layers'. One layer is written back
  // while the next computes.
  std::byte* write_back_buffer = nullptr;
  int64_t second_write_back_buffer = 0;
  std::byte* pages[2] = {};  // the past, streamed
  float* state = nullptr;
};

class StepScratch {
 public:
  // All arguments outlive the scratch.
  StepScratch(Device& device, const StepSettings& settings, Fences& fences);

  bool covers(const Capacities& capacities) const;
  // Grows to at least these capacities. Throws BudgetError.
  void ensure(const Capacities& capacities);
  void drop_prefill();  // frees the prefill's part
  // Streams the past of a prefill in waves of kWidePages: each wave loads and stores the softmax
  // states of all new tokens. Only from memory that is free, half of it at most; else waves stay
  // as they are. narrow_waves() frees that memory, also during a step none of whose work runs.
  void widen_waves();
  void narrow_waves();
  uint64_t wide_bytes() const { return wide_memory_.bytes(); }
  void drop_decode();  // frees the decode's part
  const Capacities& capacities() const { return capacities_; }
  // Undoes the growth of a step that cannot begin. Throws BudgetError, and then has no scratch, if
  // the memory was taken meanwhile.
  void return_to(const Capacities& before);

  const DecodeScratch& decode() const { return decode_; }
  const PrefillScratch& prefill() const { return prefill_; }
  bool has_prefill() const { return static_cast<bool>(prefill_memory_); }
  uint64_t bytes() const { return decode_memory_.bytes() + prefill_memory_.bytes(); }
  // Adds what determines all addresses and sizes of the decode's part, see StepKey.
  void append_key(std::vector<uint64_t>& key) const;

 private:
  void allot_prefill_memory();

  Device& device_;
  const StepSettings& settings_;
  Capacities capacities_;
  StepBuffer decode_memory_;
  StepBuffer prefill_memory_;
  StepBuffer wide_memory_;  // of the past's pages, in place of those in prefill_memory_
  DecodeScratch decode_;
  PrefillScratch prefill_;
};

// Pages of a prefill's past that are streamed at a time: always; while memory is free.
inline constexpr int kWavePages = 16;
inline constexpr int kWidePages = 128;
// Bytes of both halves of the double buffer.
inline uint64_t wave_bytes(const StepSettings& settings, int pages) {
  return static_cast<uint64_t>(2 * pages * settings.layout.row_layer_bytes());
}

// Bytes that scratch of these capacities takes.
uint64_t scratch_bytes(const StepSettings& settings, const Capacities& capacities);

}  // namespace fasa
