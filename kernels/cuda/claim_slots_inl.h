// Assigns hot slots and fetches to predictions, one block per (sequence, KV head). Predicted sets
// that a select wrote are ascending: then each slot looks its position up among the predictions.
// Predictions in any other order are compared pairwise.
#pragma once

#include "kernels/cuda/hot_rows_inl.h"
#include "kernels/cuda/simt.h"

namespace fasa::cuda {

// One bit per prediction or slot, for the first kMax; for later ones the answer is computed again.
struct ClaimSlotsBits {
  static constexpr int kMax = 1 << 15;
  uint32_t held[kMax / 32];        // predictions that a slot holds
  uint32_t candidates[kMax / 32];  // predictions that are new
  uint32_t keep[kMax / 32];        // slots that are predicted

  FASA_DEVICE static bool test(const uint32_t* bits, int i) {
    return (bits[i / 32] >> i % 32 & 1) != 0;
  }
  FASA_DEVICE static void set(uint32_t* bits, int i) {
    simt::atomic_or(&bits[i / 32], 1u << i % 32);
  }
};

struct ClaimSlotsKernel {
  static constexpr const char* kName = "claim_slots";
  static constexpr int kThreads = kHotThreads;

  ClaimSlotsParams params;

  static constexpr int64_t kBitsAt = align_up(sizeof(HotShared));
  static constexpr int64_t kSharedBytes = kBitsAt + int64_t{sizeof(ClaimSlotsBits)};

  FASA_DEVICE void operator()() const {
    const SequenceDesc& sequence = params.step.sequences[simt::block_z()];
    const HotHead hot(params.step, sequence, sequence.hot_table, simt::block_y());
    const int64_t index = int64_t{simt::block_z()} * params.step.layout.kv_heads + simt::block_y();
    int chosen = 0;
    if (sequence.mode == StepMode::kDecode && hot.slots().count > 0) {
      const int room = params.max_rows - predicted_in_this_step(hot);
      if (room > 0) chosen = claim(hot, sequence, index, room);
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
    bool ascending;

    FASA_DEVICE int32_t operator[](int i) const { return set[i]; }
  };

  FASA_DEVICE ClaimSlotsBits& bits() const {
    return *reinterpret_cast<ClaimSlotsBits*>(simt::shared_memory() + kBitsAt);
  }
  FASA_DEVICE static int count_all(int mine) {
    return static_cast<int>(
        block_prefix_sum(static_cast<uint64_t>(mine), HotHead::shared().warp_sums).all);
  }

  FASA_DEVICE int predicted_in_this_step(const HotHead& hot) const {
    const HotSlots& slots = hot.slots();
    int mine = 0;
    for (int slot = simt::thread_index(); slot < slots.count; slot += kThreads) {
      const bool prediction = slots.last_uses[slot] == predicted_use(params.step_number.read());
      mine += slots.positions[slot] >= 0 && prediction ? 1 : 0;
    }
    return count_all(mine);
  }

  FASA_DEVICE Predictions find_predictions(int64_t index) const {
    const int size = params.selected_sizes[index];
    const int count = size < 0                          ? 0
                      : size < params.selected_capacity ? size
                                                        : params.selected_capacity;
    Predictions predictions = {params.sets + index * params.selected_capacity, count, false};
    int falling = 0;
    for (int i = 1 + simt::thread_index(); i < predictions.count; i += kThreads) {
      falling += predictions[i] <= predictions[i - 1] ? 1 : 0;
    }
    predictions.ascending = count_all(falling) == 0 && predictions.count <= ClaimSlotsBits::kMax;
    return predictions;
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

  FASA_DEVICE bool is_predicted(const HotHead& hot, const SequenceDesc& sequence,
                                const Predictions& predictions, int slot) const {
    const int32_t position = hot.slots().positions[slot];
    if (position < 0 || !eligible(hot, sequence, position)) return false;
    return predictions.ascending ? find_sorted(predictions.set, predictions.count, position) >= 0
                                 : among(predictions, position, predictions.count);
  }
  // New: in no slot, and the first prediction of its position.
  FASA_DEVICE bool is_new(const HotHead& hot, const SequenceDesc& sequence,
                          const Predictions& predictions, int i) const {
    const int32_t position = predictions[i];
    if (!eligible(hot, sequence, position)) return false;
    if (predictions.ascending) return !ClaimSlotsBits::test(bits().held, i);
    for (int slot = 0; slot < hot.slots().count; ++slot) {
      if (hot.slots().positions[slot] == position) return false;
    }
    return !among(predictions, position, i);
  }

  FASA_DEVICE void mark(const HotHead& hot, const SequenceDesc& sequence,
                        const Predictions& predictions) const {
    ClaimSlotsBits& marks = bits();
    for (int i = simt::thread_index(); i < ClaimSlotsBits::kMax / 32; i += kThreads) {
      marks.held[i] = marks.candidates[i] = marks.keep[i] = 0;
    }
    simt::sync_block();
    for (int slot = simt::thread_index(); slot < hot.slots().count; slot += kThreads) {
      if (slot < ClaimSlotsBits::kMax && is_predicted(hot, sequence, predictions, slot)) {
        ClaimSlotsBits::set(marks.keep, slot);
      }
      const int32_t position = hot.slots().positions[slot];
      if (!predictions.ascending || position < 0) continue;
      const int i = find_sorted(predictions.set, predictions.count, position);
      if (i >= 0) ClaimSlotsBits::set(marks.held, i);
    }
    simt::sync_block();
    const int end =
        predictions.count < ClaimSlotsBits::kMax ? predictions.count : ClaimSlotsBits::kMax;
    for (int i = simt::thread_index(); i < end; i += kThreads) {
      if (is_new(hot, sequence, predictions, i)) ClaimSlotsBits::set(marks.candidates, i);
    }
    simt::sync_block();
  }

  // Predictions of earlier steps that are predicted again.
  FASA_DEVICE void renew(const HotHead& hot, const SequenceDesc& sequence,
                         const Predictions& predictions) const {
    const HotSlots& slots = hot.slots();
    for (int slot = simt::thread_index(); slot < slots.count; slot += kThreads) {
      if (slots.positions[slot] < 0 || !is_prediction(slots.last_uses[slot])) continue;
      if (is_predicted(hot, sequence, predictions, slot)) {
        slots.last_uses[slot] = predicted_use(params.step_number.read());
      }
    }
    simt::sync_block();
  }

  // Returns the number of rows to fetch.
  FASA_DEVICE int claim(const HotHead& hot, const SequenceDesc& sequence, int64_t index,
                        int room) const {
    const Predictions predictions = find_predictions(index);
    mark(hot, sequence, predictions);
    const auto candidate = [&](int i) {
      if (i >= predictions.count) return false;
      return i < ClaimSlotsBits::kMax ? ClaimSlotsBits::test(bits().candidates, i)
                                      : is_new(hot, sequence, predictions, i);
    };
    if (params.runners_up) renew(hot, sequence, predictions);
    const auto keep = [&](int slot) {
      return slot < ClaimSlotsBits::kMax ? ClaimSlotsBits::test(bits().keep, slot)
                                         : is_predicted(hot, sequence, predictions, slot);
    };
    int mine = 0;
    for (int i = simt::thread_index(); i < predictions.count; i += kThreads)
      mine += candidate(i) ? 1 : 0;
    const int count = count_all(mine);
    FetchItem* fetches = params.fetches + index * params.max_rows;
    const Victims victims = hot.choose(params.replacement, params.step_number.read(), keep,
                                       room < count ? room : count, fetches);
    if (victims.count == 0) return 0;
    spread(predictions, candidate, params.runners_up ? victims.count : count, victims.count,
           fetches);
    const HotSlots& slots = hot.slots();
    for (int i = simt::thread_index(); i < victims.count; i += kThreads) {
      const auto position =
          static_cast<int32_t>(reinterpret_cast<intptr_t>(fetches[i].destination));
      const int32_t slot = victims.slot(i);
      slots.positions[slot] = position;
      slots.last_uses[slot] = predicted_use(params.step_number.read());
      fetches[i] = {hot.block_row(position), hot.hot_row(slot)};
    }
    return victims.count;
  }

  // Writes the position of fetch i, which is candidate number i * count / chosen, into its item: if
  // not all candidates get a slot, the chosen ones are spread evenly over the first `count`.
  template <typename Candidate>
  FASA_DEVICE static void spread(const Predictions& predictions, const Candidate& candidate,
                                 int count, int chosen, FetchItem* fetches) {
    int before = 0;
    for (int begin = 0; begin < predictions.count; begin += kThreads) {
      const int at = begin + simt::thread_index();
      const bool mine = candidate(at);
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
