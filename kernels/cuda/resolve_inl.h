// Finds the rows of a wave of set entries and lists the rows to fetch: a block per (sequence, KV
// head). Each hot slot looks its position up in the set, which lies in shared memory as bits.
// Another kernel copies the rows of many heads (gather_inl.h); rows of few heads, fetched while
// others are scored, are copied by the head's own block.
#pragma once

#include "kernels/cuda/copy_units_inl.h"
#include "kernels/cuda/hot_rows_inl.h"
#include "kernels/cuda/simt.h"

namespace fasa::cuda {

// The part of a set in a window of positions. Sets are ascending.
struct SetIndex {
  PositionBits bits;
  int32_t first[PositionBits::kPositions / 32];  // entry of the first position of a word

  // All threads call it, before and after a barrier.
  FASA_DEVICE void fill(const int32_t* set, int count, int window) {
    for (int i = simt::thread_index(); i < count; i += simt::block_threads()) {
      const int32_t position = set[i];
      if (PositionBits::window_of(position) != window) continue;
      bits.add(position);
      const bool begins = i == 0 || set[i - 1] / 32 != position / 32;
      if (begins) first[PositionBits::word_of(position)] = i;
    }
  }
  // The entry of a position in the window, or -1.
  FASA_DEVICE int find(int32_t position) const {
    if (!bits.has(position)) return -1;
    const int word = PositionBits::word_of(position);
    return first[word] + simt::count_bits(bits.words[word] & (PositionBits::bit_of(position) - 1));
  }
};

struct ResolveKernel {
  static constexpr const char* kName = "resolve";
  static constexpr int kThreads = kHotThreads;
  static constexpr int64_t kIndexAt = align_up(sizeof(HotShared));
  static constexpr int64_t kSharedBytes = kIndexAt + int64_t{sizeof(SetIndex)};

  ResolveParams params;

  FASA_DEVICE void operator()() const {
    for_each_token([this](int sequence) { resolve(sequence); });
  }

 protected:
  struct Found {
    const FetchItem* fetches;
    int count;
  };

  FASA_DEVICE int kv_head() const { return params.step.first_head() + simt::block_y(); }

  // The block's descriptor; tokens that share hot slots one after the other, in the first one's
  // block.
  template <typename Each>
  FASA_DEVICE void for_each_token(const Each& each) const {
    const int first = simt::block_z();
    const bool alone = is_local(first);
    if (!alone && first % params.step.together != 0) return;
    const int end = alone ? first + 1 : first + params.step.together;
    for (int token = first; token < end; ++token) {
      if (is_local(token) != alone) continue;  // it takes no part
      if (token > first) simt::sync_block();
      each(token);
    }
  }

  FASA_DEVICE Found resolve(int sequence_index) const {
    const SequenceDesc& sequence = params.step.sequences[sequence_index];
    const Wave wave = wave_of(sequence_index);
    for (int i = simt::thread_index(); i < wave.tiles; i += kThreads) wave.ready[i] = 1;
    const bool local = is_local(sequence_index);
    const HotHead head(params.step, sequence, local ? nullptr : sequence.hot_table, kv_head());
    Counts counts = {};
    int fetched = 0;
    if (local) {
      for (int i = simt::thread_index(); i < wave.entries; i += kThreads) {
        const int position = wave.set[params.begin + i];
        wave.rows[i] = head.block_row(position);
        ++(head.is_protected(position) ? counts.protected_rows : counts.hits);
      }
    } else {
      find_hot(head, wave, &counts);
      fetched = find_others(head, wave, &counts);
      if (fetched > 0) fetch(head, wave, fetched);
    }
    if (simt::thread_index() == 0) {
      if (params.fetch_counts != nullptr) params.fetch_counts[wave.head] = fetched;
      counts.misses = fetched;
    }
    add_counter(&params.counters->protected_rows, counts.protected_rows);
    add_counter(&params.counters->hits, counts.hits);
    add_counter(&params.counters->misses, counts.misses);
    add_counter(&params.counters->prefetched_used, counts.used_predictions);
    return {wave.fetches, fetched};
  }

 private:
  FASA_DEVICE bool is_local(int sequence) const {
    return params.step.sequences[sequence].access == RowAccess::kLocal;
  }

  struct Counts {
    int protected_rows;
    int hits;
    int misses;
    int used_predictions;
  };
  struct Wave {
    int64_t head;  // sequence * kv_heads + kv_head
    int tiles;
    int size;     // of the set
    int entries;  // of this wave
    const int32_t* set;
    const std::byte** rows;
    uint8_t* ready;
    FetchItem* fetches;
  };

  FASA_DEVICE Wave wave_of(int sequence_index) const {
    const SequenceDesc& sequence = params.step.sequences[sequence_index];
    Wave wave = {};
    const int width = params.end - params.begin;
    wave.head = int64_t{sequence_index} * params.step.layout.kv_heads + kv_head();
    wave.tiles = (width + kTileTokens - 1) / kTileTokens;
    wave.size = sequence.mode == StepMode::kDecode ? params.selected_sizes[wave.head] : 0;
    const int end = params.end < wave.size ? params.end : wave.size;
    wave.entries = end > params.begin ? end - params.begin : 0;
    wave.set = params.sets + wave.head * params.selected_capacity;
    wave.rows = params.rows + wave.head * width;
    wave.ready = params.tile_ready + wave.head * wave.tiles;
    wave.fetches = params.fetches == nullptr ? nullptr : params.fetches + wave.head * width;
    return wave;
  }

  // Writes the wave's hot rows to `rows`, and null for the other entries. In the set's first wave,
  // marks all hits of the set as used in this step, so that no fetch evicts them. Counts the slots
  // that may go.
  FASA_DEVICE void find_hot(const HotHead& head, const Wave& wave, Counts* counts) const {
    for (int i = simt::thread_index(); i < wave.entries; i += kThreads) wave.rows[i] = nullptr;
    HotHead::begin_counts();
    // Entries whose slots matter: of the whole set in its first wave.
    const int begin = params.begin;
    const int end = begin == 0 ? wave.size : begin + wave.entries;
    if (begin >= end || head.slots().count == 0) return simt::sync_block();
    SetIndex& index = *reinterpret_cast<SetIndex*>(simt::shared_memory() + kIndexAt);
    const int last = PositionBits::window_of(wave.set[end - 1]);
    for (int window = PositionBits::window_of(wave.set[begin]); window <= last; ++window) {
      index.bits.clear();
      simt::sync_block();
      index.fill(wave.set + begin, end - begin, window);
      simt::sync_block();
      head.for_each_slot([&](int slot, int32_t position, int32_t last_use) {
        int i = -1;
        if (position >= 0 && PositionBits::window_of(position) == window) i = index.find(position);
        if (i >= 0 && !head.is_protected(position) && head.device_row(position) == nullptr) {
          if (begin == 0) last_use = mark_hit(slot, last_use, i, head, wave, counts);
          if (i < wave.entries) wave.rows[i] = head.hot_row(slot);
        }
        if (window == last) HotHead::count(position, last_use, params.step_number.read());
      });
      simt::sync_block();
    }
  }

  // The fetch of a row that this step has predicted, or fetches for an earlier token, may not be
  // done yet; fetches of earlier steps are.
  FASA_DEVICE int32_t mark_hit(int slot, int32_t last_use, int entry, const HotHead& head,
                               const Wave& wave, Counts* counts) const {
    const int32_t step = params.step_number.read();
    if (is_prediction(last_use)) ++counts->used_predictions;
    if (step_of(last_use) == step && entry < wave.entries) wave.ready[entry / kTileTokens] = 0;
    return head.slots().last_uses[slot] = slot_use(step);
  }

  // Finds protected rows and device copies, and writes the entries of the misses, in order, to the
  // fetch list. Returns the number of misses.
  FASA_DEVICE int find_others(const HotHead& head, const Wave& wave, Counts* counts) const {
    int misses = 0;
    for (int begin = 0; begin < wave.entries; begin += kThreads) {
      const int i = begin + simt::thread_index();
      bool miss = false;
      if (i < wave.entries) {
        const int position = wave.set[params.begin + i];
        if (head.is_protected(position)) {
          wave.rows[i] = head.protected_row(position);
          ++counts->protected_rows;
        } else if (wave.rows[i] != nullptr) {
          ++counts->hits;
        } else if (const std::byte* row = head.device_row(position); row != nullptr) {
          wave.rows[i] = row;
          ++counts->hits;
        } else {
          miss = true;
        }
      }
      const BlockSum sum = block_prefix_sum(miss ? 1 : 0, HotHead::shared().warp_sums);
      if (miss) {
        wave.fetches[misses + static_cast<int>(sum.through) - 1].destination =
            reinterpret_cast<std::byte*>(static_cast<intptr_t>(i));
      }
      misses += static_cast<int>(sum.all);
    }
    simt::sync_block();
    return misses;
  }

  FASA_DEVICE void fetch(const HotHead& head, const Wave& wave, int misses) const {
    const HotSlots& slots = head.slots();
    const int32_t step = params.step_number.read();
    const int evicted = head.evict(
        step, misses, [](int, int32_t, int32_t last_use) { return last_use; },
        [&](int m, int slot) {
          wave.fetches[m].source = reinterpret_cast<std::byte*>(static_cast<intptr_t>(slot));
        });
    const int64_t row_bytes = params.step.layout.row.bytes();
    for (int m = simt::thread_index(); m < misses; m += kThreads) {
      const auto i = static_cast<int>(reinterpret_cast<intptr_t>(wave.fetches[m].destination));
      const int position = wave.set[params.begin + i];
      std::byte* destination = nullptr;
      if (m < evicted) {
        const auto slot = static_cast<int>(reinterpret_cast<intptr_t>(wave.fetches[m].source));
        slots.positions[slot] = position;
        slots.last_uses[slot] = slot_use(step);
        destination = head.hot_row(slot);
      } else {
        destination =
            params.fetch_buffer + (wave.head * (params.end - params.begin) + i) * row_bytes;
      }
      wave.fetches[m] = {head.block_row(position), destination};
      wave.rows[i] = destination;
      wave.ready[i / kTileTokens] = 0;
    }
  }
};

// Resolve, then the block copies the rows it found.
struct FetchKernel : ResolveKernel {
  static constexpr const char* kName = "fetch";

  FASA_DEVICE void operator()() const {
    for_each_token([this](int sequence) {
      const Found found = resolve(sequence);
      simt::sync_block();
      copy(found);
    });
  }

 private:
  FASA_DEVICE void copy(const Found& found) const {
    const int units = static_cast<int>(params.step.layout.row.bytes() / sizeof(simt::Word16));
    copy_units(int64_t{found.count} * units, 0, 1, [&](int64_t unit) {
      const FetchItem item = found.fetches[unit / units];
      return UnitCopy::of(item, unit % units);
    });
  }
};

// A block for each of the call's heads.
template <typename Kernel, typename Launcher>
void launch_heads(const Kernel& kernel, const Launcher& launch) {
  const StepParams& step = kernel.params.step;
  launch(kernel, {.y = step.head_count(), .z = step.count, .shared_bytes = Kernel::kSharedBytes});
}

template <typename Launcher>
void start(const ResolveParams& params, const Launcher& launch) {
  launch_heads(ResolveKernel{params}, launch);
}

template <typename Launcher>
void start(const FetchParams& params, const Launcher& launch) {
  launch_heads(FetchKernel{{params.resolve}}, launch);
}

}  // namespace fasa::cuda
