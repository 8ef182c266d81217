// The device memory that a step works in and that nothing outlives: token sets, row addresses,
// partial softmaxes, fetch buffers. Sized by begin_step, never on the way.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/params.h"
#include "offload/device.h"
#include "scheduler/step_settings.h"

namespace fasa {

// What a decode step needs room for. Shapes grow, and a grown shape covers every smaller one.
struct DecodeShape {
  int count = 0;              // sequences
  int selected_capacity = 0;  // tokens of the largest set; 0 where every layer attends to all
  int low_bit_capacity = 0;   // of the largest low-bit set
  int dense_tokens = 0;       // at a time, of contexts that a layer attends to whole; 0 = none does
  int window_tokens = 0;      // ... of what layers with window rows see
  // Predictions, if there are any: tokens of the largest predicted set and how many of those sets
  // are under way at a time (0 where the predictions are no sets).
  bool predictions = false;
  int prediction_capacity = 0;
  int prediction_buffers = 0;

  bool operator==(const DecodeShape&) const = default;
  // Rows of a head that a layer may fetch ahead: they have the hot rows that no set takes. Longer
  // sets leave fewer, so this is no size of its own that a longer context would need less of.
  int prediction_rows(int hot_rows) const;
  bool covers(const DecodeShape& other) const;
  DecodeShape joined(const DecodeShape& other) const;
};

// Prefill with rows on the host needs a write-back buffer and room to stream the past through; with pages of a
// caller's that are smaller than ours, room to put them together.
struct PrefillShape {
  int pages = 0;       // of the write-back buffer, all prefill sequences of the step together
  int tokens = 0;      // new ones, all prefill sequences together
  int past_pages = 0;  // the longest past, in pages

  bool operator==(const PrefillShape&) const = default;
  bool covers(const PrefillShape& other) const;
  PrefillShape joined(const PrefillShape& other) const;
};

// Device pointers, [.] as in params.h.
struct DecodeScratch {
  int selected_capacity = 0;
  int wave = 0;        // set entries that are resolved, fetched and attended at a time
  int dense_wave = 0;  // tokens at a time where all are attended to
  int32_t* sets = nullptr;
  int32_t* selected_sizes = nullptr;
  LowBitSet low_bit;
  std::byte* select =
      nullptr;  // that selects work in, of sets and of predictions one after the other
  const std::byte** rows = nullptr;
  uint8_t* tile_ready = nullptr;
  FetchItem* fetches = nullptr;
  int32_t* fetch_counts = nullptr;
  float* partials = nullptr;
  float* low_bit_partials = nullptr;
  float* state = nullptr;
  std::byte* fetch_buffer = nullptr;  // rows that found no hot slot, null where all find one
  // [dense_wave / kPageTokens + 1] pages of one layer: a window may begin inside a page.
  std::byte* pages[2] = {};
  int prediction_rows = 0;
  int prediction_capacity = 0;
  int prediction_buffers = 0;
  int64_t heads = 0;                   // count * kv_heads, the stride of what follows
  int32_t* prediction_sets = nullptr;  // [prediction_buffers, count, kv_heads, prediction_capacity]
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
  // Of the even layers; bytes to the odd ones'. One layer is written back while the next computes.
  std::byte* write_back_buffer = nullptr;
  int64_t second_write_back_buffer = 0;
  std::byte* pages[2] = {};  // the past, streamed
  float* state = nullptr;
};

// Of one layer of a page, as pages are streamed: whole, whatever the size of a caller's pages.
constexpr int64_t staged_page_bytes(const CacheLayout& layout) {
  return layout.kv_heads * kPageTokens * layout.row.bytes();
}

class StepScratch {
 public:
  StepScratch(Device& device, const StepSettings& settings);

  // Room for the shapes at least. Streams must be idle where `covers` said no. Throws BudgetError.
  bool covers(const DecodeShape& decode, const PrefillShape& prefill) const;
  void ensure(const DecodeShape& decode, const PrefillShape& prefill);
  void drop_prefill();  // gives the prefill's part back; streams must be idle
  void drop_decode();   // as well
  // What there is room for now, and back to it: a step that cannot begin leaves what was reserved.
  // Streams must be idle where anything was ensured or dropped since. Throws BudgetError, and has
  // no scratch then, where others took the memory meanwhile.
  struct Shapes {
    DecodeShape decode;
    PrefillShape prefill;
    int hot_rows;
    bool operator==(const Shapes&) const = default;
  };
  Shapes shapes() const;
  void return_to(const Shapes& before);

  // DecodeShape's, for such a context: in powers of two up to a whole wave, so that a sequence that
  // grows by a token at a time has scratch anew a few times only.
  static int dense_tokens(const StepSettings& settings, int64_t context);
  // What ensure() would allocate for these shapes alone. The sizes in `waves` (selected_capacity,
  // wave, dense_wave) are those that the step works with; its pointers mean nothing.
  static DecodeScratch waves(const StepSettings& settings, const DecodeShape& decode);
  static uint64_t bytes_for(const StepSettings& settings, const DecodeShape& decode,
                            const PrefillShape& prefill);

  const DecodeScratch& decode() const { return decode_; }
  const PrefillScratch& prefill() const { return prefill_; }
  bool has_prefill() const { return static_cast<bool>(prefill_memory_); }
  uint64_t bytes() const { return decode_memory_.bytes() + prefill_memory_.bytes(); }
  // Adds what all addresses and sizes of the decode's part follow from.
  void add_to_key(std::vector<uint64_t>& key) const;

 private:
  Device& device_;
  const StepSettings& settings_;
  DecodeShape decode_shape_;
  PrefillShape prefill_shape_;
  Buffer decode_memory_;
  Buffer prefill_memory_;
  DecodeScratch decode_;
  PrefillScratch prefill_;
};

}  // namespace fasa
