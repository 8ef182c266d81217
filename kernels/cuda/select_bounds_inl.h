// A select's second kernel (select_inl.h): computes bounds for each query head from the sample, by
// one large block per KV head, which keeps the sample's keys in registers; and initialises the
// scan's state.
#pragma once

#include "kernels/cuda/sample_pages_inl.h"
#include "kernels/cuda/select_kernel_inl.h"

namespace fasa::cuda {

struct BoundsKernel : SelectKernel {
  static constexpr const char* kName = "select bounds";
  static constexpr int kThreads = 1024;
  static constexpr int kResidentBlocks = 1;
  static constexpr int kEach = kSamplePages * kPageTokens / kThreads;

  FASA_DEVICE void operator()() const {
    const SelectHead head(params, scratch, scorers);
    if (!head.scores()) return;
    if (simt::thread_index() == 0) *head.lists().state = {};
    if (head.stride() == 0) return keep_all(head);
    load_maxima(head);
    const uint32_t threshold = sample_threshold(head);
    for (int h = simt::thread_index(); h < head.group(); h += kThreads) {
      // If the threshold is below the lowest float, or not a number, only -inf is left out.
      const float bound = value_of(threshold) + rank().maxima[h];
      set_bound(head, h, bound >= kLowestFloat ? bound : kLowestFloat, rank().maxima[h]);
    }
  }

 private:
  FASA_DEVICE static void keep_all(const SelectHead& head) {
    for (int h = simt::thread_index(); h < head.group(); h += kThreads) {
      set_bound(head, h, -infinity(), -infinity());
    }
  }
  FASA_DEVICE static void set_bound(const SelectHead& head, int h, float least, float sampled) {
    head.lists().bounds[h] = {least, sampled};
    head.lists().maxima[h] = key_of(sampled);
  }

  // Maxima of the scored pages, as in SelectHead::load_maxima().
  FASA_DEVICE void load_maxima(const SelectHead& head) const {
    const int pages = SamplePages{head}.scored();
    for (int h = simt::warp(); h < head.whole_fours(); h += kThreads / simt::kWarpThreads) {
      float largest = h < head.group() ? kLowestFloat : 0.0f;
      for (int i = simt::lane(); i < pages && h < head.group(); i += simt::kWarpThreads) {
        const float of_page = head.lists().page_maxima[i * head.group() + h];
        largest = of_page > largest ? of_page : largest;
      }
      largest = simt::warp_max(largest);
      if (simt::lane() == 0) rank().maxima[h] = largest;
    }
    if (simt::thread_index() == 0) rank().found_rank = 0;
    simt::sync_block();
  }

  // The key of a rank in the sample; 0 if the sample has too few keys.
  FASA_DEVICE uint32_t sample_threshold(const SelectHead& head) const {
    const SamplePages pages = {head};
    const int tokens = pages.ranked() * kPageTokens;
    constexpr int kAhead = SelectHead::kAhead;
    uint32_t keys[kEach / kAhead][kAhead] = {};
    int mine = 0;
    FASA_UNROLL
    for (int part = 0; part < kEach / kAhead; ++part) {
      const int first = simt::thread_index() + part * kAhead * kThreads;
      if (first >= tokens) break;
      head.relative_keys(head.lists().sample, first, tokens, rank().maxima, keys[part]);
      FASA_UNROLL
      for (int a = 0; a < kAhead; ++a) {
        const int i = first + a * kThreads;
        const bool competes =
            i < tokens && head.competes(pages.at(i / kPageTokens) * kPageTokens + i % kPageTokens);
        keys[part][a] = competes ? keys[part][a] : 0;
        mine += competes ? 1 : 0;
      }
    }
    const auto counted = static_cast<int32_t>(block_count(static_cast<uint32_t>(mine)));
    const int32_t wanted = sample_rank(head, counted);
    if (wanted > counted) return 0;
    const auto each = [&](const auto& visit) {
      FASA_UNROLL
      for (int a = 0; a < kEach; ++a) {
        const uint32_t key = keys[a / kAhead][a % kAhead];
        if (key != 0) visit(key, [] { return 0; });
      }
    };
    constexpr int kMinBit = 10;  // the lower bits would let less than a thousandth more survive
    return key_of_rank(rank(), static_cast<uint32_t>(wanted), each, kMinBit).key;
  }

  // Several times the budget's rank in a sample, plus its noise, so that the bounds hold although
  // the sample's maxima are too low, by a different amount per head; limited so that the expected
  // candidates fit into 60 % of the capacity.
  FASA_DEVICE static int32_t sample_rank(const SelectHead& head, int32_t counted) {
    const float competing = static_cast<float>(head.competing());
    const float need = static_cast<float>(head.plan().ranked());
    const float share = static_cast<float>(counted) / competing;
    float factor = 0.08f * competing / need;
    factor = factor < 4 ? 4 : factor > 12 ? 12 : factor;
    const float expected = share * need;
    const float most = 0.6f * share * static_cast<float>(head.lists().capacity);
    float rank = factor * expected + 3 * simt::square_root(expected) + 4;
    rank = rank < most ? rank : most;
    return rank < 1 ? 1 : static_cast<int32_t>(rank);
  }
};

}  // namespace fasa::cuda
