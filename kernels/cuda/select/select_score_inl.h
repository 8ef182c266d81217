// A select's first kernel (select_inl.h): scores every page.
#pragma once

#include "kernels/cuda/select/select_kernel_inl.h"

namespace fasa::cuda {

struct ScoreKernel : SelectKernel {
  static constexpr const char* kName = "select score";

  // Bytes of shared memory: the scorers', then the tokens' plans.
  static constexpr int64_t plans_at(const ScorerLayout& scorers) {
    return align_up(scorers.bytes(), alignof(SelectPlan));
  }
  static constexpr int64_t shared_bytes(const ScorerLayout& scorers, int together) {
    return plans_at(scorers) + together * int64_t{sizeof(SelectPlan)};
  }

  FASA_DEVICE void operator()() const {
    if (simt::thread_index() < params.step.together) {
      const int mine = first_token() + simt::thread_index();
      plans()[simt::thread_index()] = plan_selection(params, params.step.sequences[mine]);
    }
    simt::sync_block();
    int begin = INT32_MAX;
    int end = 0;
    for (int token = 0; token < params.step.together; ++token) {
      const SelectHead head = head_of(token);
      if (!head.scores()) {
        take_all(head);
        continue;
      }
      begin = head.first_page() < begin ? head.first_page() : begin;
      end = head.end_page() > end ? head.end_page() : end;
    }
    if (begin < end) score_pages(begin, end - begin);
  }

 private:
  FASA_DEVICE int first_token() const { return simt::block_z() * params.step.together; }
  FASA_DEVICE SelectPlan* plans() const {
    return reinterpret_cast<SelectPlan*>(simt::shared_memory() + plans_at(scorers));
  }
  FASA_DEVICE SelectHead head_of(int token) const {
    return SelectHead(params, scratch, first_token() + token, plans()[token]);
  }

  // This block's part of the pages of all tokens.
  FASA_DEVICE void score_pages(int first, int64_t pages) const {
    const int group = params.step.layout.gqa_group;
    const PageScorer scorer = head_of(0).scorer(scorers);
    const int begin = first + static_cast<int>(pages * simt::block_x() / simt::grid_x());
    const int end = first + static_cast<int>(pages * (simt::block_x() + 1) / simt::grid_x());
    for (int i = simt::lane(); i < scorer.queries() && simt::warp() < scorer.warps();
         i += simt::kWarpThreads) {
      scorer.maxima()[i] = kLowestFloat;
    }
    int nans = 0;
    visit_pages(scorer, begin, end, [&](int page, const float* scores) {
      for (int token = 0; token < params.step.together; ++token) {
        const SelectHead head = head_of(token);
        if (!head.scores() || page < head.first_page() || page >= head.end_page()) continue;
        store_page(head, scorer.maxima() + token * group, page,
                   scores + token * group * kScoreStride, &nans);
      }
    });
    nans = simt::warp_sum(nans);
    if (nans > 0 && simt::lane() == 0 && params.counters != nullptr) {
      simt::atomic_add(&params.counters->nan_scores, static_cast<uint64_t>(nans));
    }
    simt::sync_block();
    for (int i = simt::thread_index(); i < scorer.queries(); i += kThreads) {
      float maximum = kLowestFloat;
      for (int warp = 0; warp < scorer.warps(); ++warp) {
        const float of_warp = scorer.maxima(warp)[i];
        maximum = of_warp > maximum ? of_warp : maximum;
      }
      const SelectHead head = head_of(i / group);
      head.lists().block_maxima[simt::block_x() * group + i % group] = maximum;
    }
  }

  FASA_DEVICE static void take_all(const SelectHead& head) {
    const int count = head.decodes() ? head.plan().visible() : 0;
    for (int i = simt::block_x() * kThreads + simt::thread_index(); i < count;
         i += simt::grid_x() * kThreads) {
      head.set()[i] = head.plan().first + i;
    }
    if (simt::block_x() == 0 && simt::thread_index() == 0) {
      head.selected_size() = count;
      head.set_low_bit_size(0);
      head.set_runners_up_size(0);
      head.set_page_count(0);
    }
  }

  // Called by the whole warp; each lane stores two adjacent tokens. `maxima` [group]: this warp's.
  FASA_DEVICE void store_page(const SelectHead& head, float* maxima, int page, const float* scores,
                              int* nans) const {
    const int slot = 2 * simt::lane();
    const int position = page * kPageTokens + slot;
    const int in_scratch = page - head.first_page();
    const int64_t token = int64_t{in_scratch} * kPageTokens + slot;
    const int64_t run = int64_t{in_scratch} * kPageRuns + slot / kRunTokens;
    const bool visible[2] = {head.visible(position), head.visible(position + 1)};
    const bool competes[2] = {head.competes(position), head.competes(position + 1)};
    for (int first = 0; first < head.group(); first += 4) {
      SelectHead::Four raw[2];
      SelectHead::Four run_maxima;
      FASA_UNROLL
      for (int i = 0; i < 4; ++i) {
        const int h = first + i;
        if (h >= head.group()) break;
        const auto two = *reinterpret_cast<const simt::Word8*>(scores + h * kScoreStride + slot);
        FASA_UNROLL
        for (int t = 0; t < 2; ++t) {
          raw[t].of[i] =
              visible[t] ? finite_score(simt::float_of(two.words[t]), nans) : -infinity();
        }
        const float page_maximum =
            simt::warp_max(raw[0].of[i] > raw[1].of[i] ? raw[0].of[i] : raw[1].of[i]);
        if (simt::lane() == 0 && page_maximum > maxima[h]) maxima[h] = page_maximum;
        write_codes(head, h, in_scratch, raw[0].of[i], raw[1].of[i], page_maximum);
        float largest = competes[0] ? raw[0].of[i] : -infinity();
        largest = competes[1] && raw[1].of[i] > largest ? raw[1].of[i] : largest;
        for (int lanes = 1; lanes < kRunTokens / 2; lanes *= 2) {
          const float other = simt::shuffle_xor(largest, lanes);
          largest = other > largest ? other : largest;
        }
        run_maxima.of[i] = largest;
      }
      head.store_four(head.lists().raw, token, first, raw[0]);
      head.store_four(head.lists().raw, token + 1, first, raw[1]);
      if (slot % kRunTokens == 0) {
        head.store_four(head.lists().run_maxima, run, first, run_maxima);
      }
    }
  }

  // For a low-bit set by page: a page's scores for head h of the group, this lane's two.
  FASA_DEVICE void write_codes(const SelectHead& head, int h, int in_scratch, float first,
                               float second, float maximum) const {
    const LowBitPages& pages = params.low_bit_pages;
    if (pages.capacity == 0) return;
    const int64_t at = head.low_bit_page(h, in_scratch);
    if (simt::lane() == 0) {
      pages.maxima[at] = maximum > kLowestFloat ? maximum * pages.scale : -infinity();
    }
    const float units = pages.scale * kScoreUnits;
    head.low_bit_codes(at)[simt::lane()] =
        code_of(first, maximum, units) | code_of(second, maximum, units) << 16;
  }
  FASA_DEVICE static uint32_t code_of(float score, float maximum, float units) {
    constexpr float kLowest = kLowestScoreCode;
    constexpr float kRound = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer
    const float distance = (score - maximum) * units;
    const float rounded = (distance > kLowest ? distance : kLowest) + kRound - kRound;
    const auto code = score >= kLowestFloat ? static_cast<int16_t>(rounded) : kNoScoreCode;
    return static_cast<uint16_t>(code);
  }
};

}  // namespace fasa::cuda
