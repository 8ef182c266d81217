// Assigns hot slots and fetches to predictions, one block per (sequence, KV head). Predictions are
// in any order; they and the slots look each other up in two sets of bits.
#pragma once

#include "kernels/cuda/hot_rows_inl.h"
#include "kernels/cuda/simt.h"

namespace fasa::cuda {

struct ClaimShared {
  PositionBits predicted;
  PositionBits held;  // predicted positions that a slot holds
  uint32_t candidates[ClaimSlotsParams::kMaxPredictions / 32];  // predictions that are new
  int32_t repeated;  // whether a prediction may occur twice
};

struct ClaimSlotsKernel {
  static constexpr const char* kName = "claim_slots";
  static constexpr int kThreads = kHotThreads;
  static constexpr int64_t kClaimAt = align_up(sizeof(HotShared));
  static constexpr int64_t kSharedBytes = kClaimAt + int64_t{sizeof(ClaimShared)};

  ClaimSlotsParams params;

  FASA_DEVICE void operator()() const {
    const SequenceDesc& sequence = params.step.sequences[simt::block_z()];
    const HotHead hot(params.step, sequence, sequence.hot_table, simt::block_y());
    const int64_t index = int64_t{simt::block_z()} * params.step.layout.kv_heads + simt::block_y();
    int chosen = 0;
    const bool first = simt::block_z() % params.step.together == 0;  // of tokens that share slots
    if (first && sequence.mode == StepMode::kDecode && hot.slots().count > 0) {
      chosen = claim(hot, sequence, index);
    }
    if (simt::thread_index() != 0) return;
    params.fetch_counts[index] = chosen;
    if (chosen > 0) {
      simt::atomic_add(&params.counters->prefetched, static_cast<uint64_t>(chosen));
    }
  }

 private:
  struct Predictions {
    const int32_t* set;
    int count;

    FASA_DEVICE int32_t operator[](int i) const { return set[i]; }
  };

  FASA_DEVICE static ClaimShared& shared() {
    return *reinterpret_cast<ClaimShared*>(simt::shared_memory() + kClaimAt);
  }
  FASA_DEVICE static int count_all(int mine) {
    return static_cast<int>(
        block_prefix_sum(static_cast<uint64_t>(mine), HotHead::shared().warp_sums).all);
  }

  // A committed token's row that the device does not hold as a protected token's or in a page's
  // copy.
  FASA_DEVICE bool eligible(const HotHead& hot, const SequenceDesc& sequence,
                            int32_t position) const {
    return position >= first_visible(sequence.start, params.window) && position < sequence.start &&
           !hot.is_protected(position) && hot.device_row(position) == nullptr;
  }
  FASA_DEVICE static bool among(const Predictions& predictions, int32_t position, int end) {
    for (int i = 0; i < end; ++i) {
      if (predictions[i] == position) return true;
    }
    return false;
  }
  FASA_DEVICE static bool candidate(int i) {
    return (shared().candidates[i / 32] >> i % 32 & 1) != 0;
  }

  // Calls visit(i) for each eligible prediction of a window of positions.
  template <typename Visit>
  FASA_DEVICE void for_each(const HotHead& hot, const SequenceDesc& sequence,
                            const Predictions& predictions, int window, const Visit& visit) const {
    for (int i = simt::thread_index(); i < predictions.count; i += kThreads) {
      const int32_t position = predictions[i];
      if (!eligible(hot, sequence, position)) continue;
      if (PositionBits::window_of(position) == window) visit(i);
    }
  }

  // Marks new predictions as candidates, and slots that are predicted to stay. Counts the slots
  // that may go. Returns the number of rows that this step had predicted before.
  FASA_DEVICE int mark(const HotHead& hot, const SequenceDesc& sequence,
                       const Predictions& predictions) const {
    ClaimShared& of = shared();
    HotHead::begin_counts();
    for (int i = simt::thread_index(); i < (predictions.count + 31) / 32; i += kThreads) {
      of.candidates[i] = 0;
    }
    const int32_t step = params.step_number.read();
    const int last = sequence.start > 0 ? PositionBits::window_of(sequence.start - 1) : 0;
    int predicted_before = 0;
    for (int window = 0; window <= last; ++window) {
      of.predicted.clear();
      of.held.clear();
      if (simt::thread_index() == 0) of.repeated = 0;
      simt::sync_block();
      for_each(hot, sequence, predictions, window, [&](int i) {
        if (of.predicted.add(predictions[i])) of.repeated = 1;
      });
      simt::sync_block();
      hot.for_each_slot([&](int slot, int32_t position, int32_t last_use) {
        if (position >= 0 && PositionBits::window_of(position) == window &&
            of.predicted.has(position)) {
          of.held.add(position);
          last_use = hot.slots().last_uses[slot] = staying(last_use);
        }
        if (window < last) return;
        const bool predicted = without_staying(last_use) == predicted_use(step);
        predicted_before += position >= 0 && predicted ? 1 : 0;
        HotHead::count(position, last_use, step);
      });
      simt::sync_block();
      for_each(hot, sequence, predictions, window, [&](int i) {
        const int32_t position = predictions[i];
        if (of.held.has(position)) return;
        if (of.repeated != 0 && among(predictions, position, i)) return;
        simt::atomic_or(&of.candidates[i / 32], 1u << i % 32);
      });
      simt::sync_block();
    }
    return count_all(predicted_before);
  }

  // Returns the number of rows to fetch.
  FASA_DEVICE int claim(const HotHead& hot, const SequenceDesc& sequence, int64_t index) const {
    const Predictions predictions = {params.sets + index * params.selected_capacity,
                                     params.predictions(index)};
    const int room = params.max_rows - mark(hot, sequence, predictions);
    int mine = 0;
    for (int i = simt::thread_index(); i < predictions.count; i += kThreads)
      mine += candidate(i) ? 1 : 0;
    const int count = count_all(mine);
    FetchItem* fetches = params.fetches + index * params.max_rows;
    const int chosen = evict(hot, room, room < count ? room : count, fetches);
    if (chosen == 0) return 0;
    spread(predictions, params.runners_up ? chosen : count, chosen, fetches);
    const HotSlots& slots = hot.slots();
    for (int i = simt::thread_index(); i < chosen; i += kThreads) {
      const auto slot = static_cast<int32_t>(reinterpret_cast<intptr_t>(fetches[i].source));
      const auto position =
          static_cast<int32_t>(reinterpret_cast<intptr_t>(fetches[i].destination));
      slots.positions[slot] = position;
      slots.last_uses[slot] = predicted_use(params.step_number.read());
      fetches[i] = {hot.block_row(position), hot.hot_row(slot)};
    }
    return chosen;
  }

  // Writes the slot of fetch i into its item. Slots that stayed are marked so no longer; runners-up
  // among them that no set has used yet become predictions of this step, if it has room for any.
  FASA_DEVICE int evict(const HotHead& hot, int room, int wanted, FetchItem* fetches) const {
    const int32_t step = params.step_number.read();
    const bool renews = params.runners_up && room > 0;
    const auto renew = [&](int slot, int32_t position, int32_t last_use) {
      if (position < 0 || !stays(last_use)) return last_use;
      const bool renewed = renews && is_prediction(last_use);
      hot.slots().last_uses[slot] = renewed ? predicted_use(step) : without_staying(last_use);
      return last_use;
    };
    return hot.evict(step, wanted, renew, [&](int i, int slot) {
      fetches[i].source = reinterpret_cast<std::byte*>(static_cast<intptr_t>(slot));
    });
  }

  // Writes the position of fetch i, which is candidate number i * count / chosen, into its item: if
  // not all candidates get a slot, the chosen ones are spread evenly over the first `count`.
  FASA_DEVICE static void spread(const Predictions& predictions, int count, int chosen,
                                 FetchItem* fetches) {
    int before = 0;
    for (int begin = 0; begin < predictions.count; begin += kThreads) {
      const int at = begin + simt::thread_index();
      const bool mine = at < predictions.count && candidate(at);
      const BlockSum sum = block_prefix_sum(mine ? 1 : 0, HotHead::shared().warp_sums);
      if (mine) {
        const int64_t number = before + static_cast<int64_t>(sum.through) - 1;
        const int64_t i = (number * chosen + count - 1) / count;
        if (i < chosen && i * count / chosen == number) {
          fetches[i].destination =
              reinterpret_cast<std::byte*>(static_cast<intptr_t>(predictions[at]));
        }
      }
      before += static_cast<int>(sum.all);
    }
    simt::sync_block();
  }
};

template <typename Launcher>
void start(const ClaimSlotsParams& params, const Launcher& launch) {
  launch(ClaimSlotsKernel{params}, {.y = params.step.layout.kv_heads,
                                    .z = params.step.count,
                                    .shared_bytes = ClaimSlotsKernel::kSharedBytes});
}

}  // namespace fasa::cuda
