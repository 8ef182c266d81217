// The scratch memory of a step on the device: token sets, row addresses, partial softmaxes, fetch
// buffers. Allocated by begin_step; contents do not outlive the step.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/params.h"
#include "offload/device.h"
#include "offload/fence.h"
#include "scheduler/step_settings.h"

namespace fasa {

// Sizes for a decode step. Shapes only grow; a larger shape covers every smaller one.
struct DecodeShape {
  int count = 0;                         // sequences
  RowAccess access = RowAccess::kLocal;  // over the link if any sequence's is
  int hot_rows = 0;                      // of each sequence over the link, per head
  int selected_capacity = 0;             // tokens of the largest set; 0: all layers are dense
  int low_bit_capacity = 0;              // tokens of the largest low-bit set
  int low_bit_blocks = 0;                // of the largest low-bit set attended to by page
  int dense_tokens = 0;                  // per wave, of dense attention; 0: none
  int window_tokens = 0;                 // the same for layers with window rows
  // Predictions, if any: tokens of the largest predicted set or list, and the number of sets in
  // flight or of lists, one a layer.
  bool predictions = false;
  int prediction_capacity = 0;
  int prediction_buffers = 0;

  bool operator==(const DecodeShape&) const = default;
  // Maximum rows per head that a layer may prefetch: the hot rows that no set occupies. Computed
  // rather than stored, because longer sets leave fewer.
  int prediction_rows() const;
  bool covers(const DecodeShape& other) const;
  DecodeShape joined(const DecodeShape& other) const;
};

// Prefill with rows over the link needs a write-back buffer and memory to stream the past through.
struct PrefillShape {
  int pages = 0;       // in the write-back buffer, all prefill sequences
  int tokens = 0;      // new tokens, all prefill sequences
  int past_pages = 0;  // the longest past, in pages

  bool operator==(const PrefillShape&) const = default;
  bool covers(const PrefillShape& other) const;
  PrefillShape joined(const PrefillShape& other) const;
};

// Pages of the write-back buffer that `tokens` new tokens after `start` earlier ones take.
inline int write_back_pages_of(int64_t start, int tokens) {
  return pages_of(start % kPageTokens + tokens);
}

// Device pointers; [.] as in params.h.
struct DecodeScratch {
  int selected_capacity = 0;
  int wave = 0;        // set entries resolved, fetched and attended at a time
  int dense_wave = 0;  // tokens per wave of dense attention
  int32_t* sets = nullptr;
  int32_t* selected_sizes = nullptr;
  LowBitSet low_bit;
  LowBitPages low_bit_pages;
  std::byte* select =
      nullptr;  // that selects work in, of sets and of predictions one after the other
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
  int wave_pages = 0;
  // The even layers' buffer, and the offset in bytes of the odd layers'. One layer is written back
  // while the next computes.
  std::byte* write_back_buffer = nullptr;
  int64_t second_write_back_buffer = 0;
  std::byte* pages[2] = {};  // the past, streamed
  float* state = nullptr;
};

class StepScratch {
 public:
  // `fences` outlives the scratch; memory waits for all work before it leaves.
  StepScratch(Device& device, const StepSettings& settings, Fences& fences);

  // Ensures at least these shapes. Throws BudgetError.
  bool covers(const DecodeShape& decode, const PrefillShape& prefill) const;
  void ensure(const DecodeShape& decode, const PrefillShape& prefill);
  void drop_prefill();  // frees the prefill's part
  void drop_decode();   // frees the decode's part
  // Snapshot of the shapes and rollback to it, for a step that cannot begin. Throws BudgetError,
  // and then has no scratch, if the memory was taken meanwhile.
  struct Shapes {
    DecodeShape decode;
    PrefillShape prefill;
    bool operator==(const Shapes&) const = default;
  };
  Shapes shapes() const;
  void return_to(const Shapes& before);

  // DecodeShape::dense_tokens for a context: a power of two up to a whole wave, so that a growing
  // sequence reallocates scratch only a few times.
  static int dense_tokens(const StepSettings& settings, int64_t context, RowAccess access);
  // What ensure() would allocate for these shapes alone. Its sizes (selected_capacity, wave,
  // dense_wave) are those of the step; its pointers are invalid.
  static DecodeScratch waves(const StepSettings& settings, const DecodeShape& decode);
  static uint64_t bytes_for(const StepSettings& settings, const DecodeShape& decode,
                            const PrefillShape& prefill);

  const DecodeScratch& decode() const { return decode_; }
  const PrefillScratch& prefill() const { return prefill_; }
  bool has_prefill() const { return static_cast<bool>(prefill_memory_); }
  uint64_t bytes() const { return decode_memory_.bytes() + prefill_memory_.bytes(); }
  // Adds to `key` what determines all addresses and sizes of the decode's part.
  void add_to_key(std::vector<uint64_t>& key) const;

 private:
  Device& device_;
  const StepSettings& settings_;
  Fences& fences_;
  DecodeShape decode_shape_;
  PrefillShape prefill_shape_;
  Buffer decode_memory_;
  Buffer prefill_memory_;
  DecodeScratch decode_;
  PrefillScratch prefill_;
};

}  // namespace fasa
