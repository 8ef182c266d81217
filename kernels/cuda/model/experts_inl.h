// Kernels around the products of expert layers: choosing a token's experts, arranging the pairs,
// and summing the results.
#pragma once

#include "kernels/cuda/block_sum_inl.h"
#include "kernels/cuda/math_inl.h"
#include "kernels/cuda/model/row_grid_inl.h"
#include "kernels/cuda/simt.h"
#include "kernels/expert_params.h"

namespace fasa::cuda {

// One warp per token.
struct ChooseExpertsKernel {
  static constexpr const char* kName = ChooseExpertsParams::kName;
  static constexpr int kThreads = simt::kWarpThreads;
  static constexpr float kTaken = -3e38f;  // below every share

  ChooseExpertsParams params;

  static int64_t shared_bytes(const ChooseExpertsParams& params) {
    return 2 * int64_t{params.count} * int64_t{sizeof(float)};
  }

  FASA_DEVICE void operator()() const {
    auto* const shares = reinterpret_cast<float*>(simt::shared_memory());
    float* const left = shares + params.count;
    if (params.sigmoid) {
      sigmoid(shares);
    } else {
      softmax(shares);
    }
    if (params.groups > 1) keep_groups(shares, left);
    for_mine(params.count, [&](int i) {
      left[i] = params.correction == nullptr ? shares[i] : shares[i] + params.correction[i];
    });
    simt::sync_warp();
    take_best(left, params.count, params.chosen);
    write(shares, left);
  }

 private:
  struct Best {
    float value = 0;
    int index = -1;  // none
  };

  template <typename Each>
  FASA_DEVICE static void for_mine(int size, const Each& each) {
    for (int i = simt::lane(); i < size; i += simt::kWarpThreads) each(i);
  }
  FASA_DEVICE float logit(int i) const {
    const float* const logits = params.logits + int64_t{simt::block_x()} * params.count;
    return params.bias == nullptr ? logits[i] : logits[i] + params.bias[i];
  }
  FASA_DEVICE void sigmoid(float* shares) const {
    for_mine(params.count, [&](int i) { shares[i] = 1 / (1 + exponential(-logit(i))); });
    simt::sync_warp();
  }
  FASA_DEVICE void softmax(float* shares) const {
    float most = logit(0);
    for_mine(params.count, [&](int i) {
      if (logit(i) > most) most = logit(i);
    });
    for (int lanes = 1; lanes < simt::kWarpThreads; lanes *= 2) {
      const float other = simt::shuffle_xor(most, lanes);
      if (other > most) most = other;
    }
    float sum = 0;
    for_mine(params.count, [&](int i) { sum += shares[i] = exponential(logit(i) - most); });
    sum = simt::warp_sum(sum);
    for_mine(params.count, [&](int i) { shares[i] /= sum; });
    simt::sync_warp();
  }

  // Marks the `count` best of `left` [size] as taken; among equals the first.
  FASA_DEVICE static void take_best(float* left, int size, int count) {
    for (int taken = 0; taken < count; ++taken) {
      Best best;
      for_mine(size, [&](int i) {
        if (left[i] != kTaken && (best.index < 0 || left[i] > best.value)) best = {left[i], i};
      });
      for (int lanes = 1; lanes < simt::kWarpThreads; lanes *= 2) {
        const Best other{simt::shuffle_xor(best.value, lanes),
                         simt::shuffle_xor(best.index, lanes)};
        if (is_better(other, best)) best = other;
      }
      // With NaN, lanes may disagree on the best: all lanes use the first one's.
      best.index = simt::shuffle(best.index, 0);
      if (best.index % simt::kWarpThreads == simt::lane()) left[best.index] = kTaken;
      simt::sync_warp();
    }
  }
  FASA_DEVICE static bool is_better(const Best& a, const Best& b) {
    if (a.index < 0) return false;
    return b.index < 0 || a.value > b.value || (a.value == b.value && a.index < b.index);
  }

  // Keeps the shares of the chosen groups; sets the others to 0.
  FASA_DEVICE void keep_groups(float* shares, float* best) const {
    const int size = params.count / params.groups;
    for_mine(params.groups, [&](int group) {
      best[group] = shares[group * size];
      for (int i = 1; i < size; ++i) {
        if (shares[group * size + i] > best[group]) best[group] = shares[group * size + i];
      }
    });
    simt::sync_warp();
    take_best(best, params.groups, params.chosen_groups);
    for_mine(params.count, [&](int i) {
      if (best[i / size] != kTaken) shares[i] = 0;
    });
    simt::sync_warp();
  }

  FASA_DEVICE void write(const float* shares, const float* left) const {
    float sum = 0;
    for_mine(params.count, [&](int i) { sum += left[i] == kTaken ? shares[i] : 0; });
    sum = simt::warp_sum(sum) + kMinExpertSum;
    const float factor = params.normalised ? params.scale / sum : params.scale;
    int64_t at = int64_t{simt::block_x()} * params.chosen;
    for (int first = 0; first < params.count; first += simt::kWarpThreads) {
      const int i = first + simt::lane();
      const bool mine = i < params.count && left[i] == kTaken;
      const uint32_t all = simt::ballot(mine);
      if (mine) {
        const int64_t to = at + simt::count_bits(all & ((1u << simt::lane()) - 1));
        params.experts[to] = i;
        const float weight = shares[i] * factor;
        params.weights[to] = params.scales == nullptr ? weight : weight * params.scales[i];
      }
      at += simt::count_bits(all);
    }
  }
};

// One block per expert: counts the pairs of the experts before, and writes its own in order.
struct ArrangeExpertsKernel {
  static constexpr const char* kName = ArrangeExpertsParams::kName;
  static constexpr int kThreads = 256;
  static constexpr int64_t kSharedBytes = kThreads / simt::kWarpThreads * int64_t{sizeof(uint64_t)};

  ArrangeExpertsParams params;

  FASA_DEVICE void operator()() const {
    auto* const warp_sums = reinterpret_cast<uint64_t*>(simt::shared_memory());
    const ExpertPairs& pairs = params.pairs;
    const int expert = simt::block_x();
    uint64_t lower = 0;
    for (int64_t i = simt::thread_index(); i < pairs.pairs(); i += kThreads) {
      lower += params.chosen[i] < expert ? 1 : 0;
    }
    auto place = static_cast<int32_t>(block_prefix_sum(lower, warp_sums).all);
    if (simt::thread_index() == 0) pairs.first[expert] = place;
    for (int64_t first = 0; first < pairs.pairs(); first += kThreads) {
      const int64_t i = first + simt::thread_index();
      const bool mine = i < pairs.pairs() && params.chosen[i] == expert;
      const BlockSum sum = block_prefix_sum(mine ? 1 : 0, warp_sums);
      if (mine) put(i, place + static_cast<int32_t>(sum.through) - 1, expert);
      place += static_cast<int32_t>(sum.all);
    }
    if (expert == pairs.count - 1 && simt::thread_index() == 0) pairs.first[pairs.count] = place;
  }

 private:
  FASA_DEVICE void put(int64_t i, int32_t place, int expert) const {
    const ExpertPairs& pairs = params.pairs;
    pairs.experts[place] = expert;
    pairs.rows[place] = static_cast<int32_t>(i / pairs.chosen);
    pairs.places[i] = place;
  }
};

// One thread per element, tokens in y.
struct MixExpertsKernel {
  static constexpr const char* kName = MixExpertsParams::kName;
  static constexpr int kThreads = 256;

  MixExpertsParams params;
  int64_t first_token;

  FASA_DEVICE void operator()() const {
    const int64_t i = int64_t{simt::block_x()} * kThreads + simt::thread_index();
    if (i >= params.size) return;
    const int64_t token = first_token + simt::block_y();
    const int64_t first = token * params.pairs.chosen;
    float sum = 0;
    for (int64_t at = first; at < first + params.pairs.chosen; ++at) {
      const int64_t pair = params.pairs.places[at];
      float result = params.results[pair * params.size + i];
      if (params.bias != nullptr) {
        result += params.bias[params.pairs.experts[pair] * params.bias_step + i];
      }
      sum += params.weights[at] * result;
    }
    params.mixed[token * params.size + i] = sum;
  }
};

template <typename Launcher>
void start(const ChooseExpertsParams& params, const Launcher& launch) {
  launch(ChooseExpertsKernel{params}, {.x = static_cast<int>(params.tokens),
                                       .shared_bytes = ChooseExpertsKernel::shared_bytes(params)});
}

template <typename Launcher>
void start(const ArrangeExpertsParams& params, const Launcher& launch) {
  launch(ArrangeExpertsKernel{params},
         {.x = params.pairs.count, .shared_bytes = ArrangeExpertsKernel::kSharedBytes});
}

template <typename Launcher>
void start(const MixExpertsParams& params, const Launcher& launch) {
  launch_by_rows(params.size, params.pairs.tokens, launch, [&](int64_t first) {
    return MixExpertsKernel{params, first};
  });
}

}  // namespace fasa::cuda
