#include "kernels/cpu/model/linear_calls.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/cpu/model/delta_heads.h"
#include "kernels/cpu/model/elementwise.h"
#include "runtime/base/parallel.h"

namespace fasa::cpu {
namespace {

// Some channels of one sequence's convolution: a window of the last `taps` inputs slides over its
// tokens.
class ConvolvedChannels {
 public:
  static constexpr int64_t kChannels = 64;

  ConvolvedChannels(const ConvolveParams& params, const LinearPart& part, int64_t first)
      : params_(params),
        part_(part),
        shape_(params.layout->shape()),
        first_(first),
        count_(std::min(kChannels, shape_.channels() - first)),
        taps_(shape_.taps) {}

  void run() {
    for (int64_t c = 0; c < count_; ++c) {
      for (int64_t i = 0; i < taps_; ++i) {
        weights_[i * kChannels + c] = params_.weights[(first_ + c) * taps_ + i];
      }
    }
    std::byte* const kept =
        part_.state + params_.layer * params_.layout->layer_bytes() + params_.layout->inputs();
    if (part_.position > 0) load(kept);
    const int64_t end = part_.tokens - part_.drafts;
    for (int64_t token = 0; token < part_.tokens; ++token) {
      take(token);
      write(token);
      if (token + 1 == end) store(end, kept);
      if (token >= end) wait(token, token - end);
      if (part_.saved != nullptr && part_.position + token + 1 == part_.saved_at) {
        store(token + 1,
              part_.saved + params_.layer * params_.layout->cut_bytes() + params_.layout->inputs());
      }
    }
  }

 private:
  // The inputs before the step count from 0, its own from taps - 1.
  float* input(int64_t number) { return window_ + number % taps_ * kChannels; }

  void load(const std::byte* kept) {
    for (int64_t i = 0; i + 1 < taps_; ++i) {
      const int64_t of_kept = i + part_.waiting, waiting = of_kept - (taps_ - 1);
      for (int64_t c = 0; c < count_; ++c) {
        input(i)[c] =
            waiting < 0 ? load_element(shape_.dtype, kept, of_kept * shape_.channels() + first_ + c)
                        : load_element(shape_.dtype, waiting_input(waiting, c), 0);
      }
    }
  }
  std::byte* waiting_input(int64_t index, int64_t c) const {
    return part_.state + params_.layer * params_.layout->layer_bytes() +
           params_.layout->waiting_input(index, first_ + c);
  }
  void wait(int64_t token, int64_t index) {
    const float* const x = input(token + taps_ - 1);
    for (int64_t c = 0; c < count_; ++c) {
      store_element(shape_.dtype, waiting_input(index, c), 0, x[c]);
    }
  }
  // The last taps - 1 inputs before token `end`.
  void store(int64_t end, std::byte* kept) {
    const int64_t bytes = dtype_bytes(shape_.dtype);
    for (int64_t i = 0; i + 1 < taps_; ++i) {
      store_row(input(end + i), count_, shape_.dtype,
                kept + (i * shape_.channels() + first_) * bytes);
    }
  }
  void take(int64_t token) {
    const float* const x = params_.x + (part_.first + token) * params_.x_stride + first_;
    float* const to = input(token + taps_ - 1);
    std::copy_n(x, count_, to);
    if (shape_.dtype == DType::kF32) return;
    for (int64_t c = 0; c < count_; ++c) to[c] = f32_from_bf16(bf16_from_f32(to[c]));
  }
  void write(int64_t token) {
    float sums[kChannels] = {};
    for (int64_t i = 0; i < taps_; ++i) {
      const float* const weights = weights_ + i * kChannels;
      const float* const x = input(token + i);
      for (int64_t c = 0; c < kChannels; ++c) sums[c] += weights[c] * x[c];
    }
    const int64_t at = (part_.first + token) * shape_.channels() + first_;
    activate(Activation::kSilu, sums, nullptr, count_, shape_.dtype,
             static_cast<std::byte*>(params_.y) + at * dtype_bytes(shape_.dtype));
  }

  const ConvolveParams& params_;
  const LinearPart& part_;
  const LinearShape& shape_;
  int64_t first_, count_, taps_;
  float weights_[kMaxLinearTaps * kChannels] = {};  // [taps, kChannels]
  float window_[kMaxLinearTaps * kChannels] = {};   // input i at row i % taps
};

// Calls with (part, index) for `count` indices of each sequence, on several threads.
template <typename Body>
void for_each_part(std::span<const LinearPart> parts, int64_t count, const Body& body) {
  parallel_for(int64_t{0}, std::ssize(parts) * count, [&](int64_t task) {
    const LinearPart& part = parts[static_cast<size_t>(task / count)];
    if (part.tokens > 0) body(part, task % count);
  });
}

uint64_t run(const ConvolveParams& params, Target) {
  constexpr int64_t kChannels = ConvolvedChannels::kChannels;
  const int64_t tiles = (params.layout->shape().channels() + kChannels - 1) / kChannels;
  for_each_part(params.parts, tiles, [&](const LinearPart& part, int64_t tile) {
    ConvolvedChannels(params, part, tile * kChannels).run();
  });
  return 0;
}

uint64_t run(const DeltaNetParams& params, Target target) {
  const LinearShape& shape = params.layout->shape();
  const DeltaBodies& bodies = delta_bodies(target);
  for_each_part(params.parts, shape.key_heads, [&](const LinearPart& part, int64_t head) {
    thread_local DeltaScratch scratch;
    scratch.fit(*params.layout);
    DeltaHeads(params, bodies, scratch).run(part, static_cast<int>(head));
  });
  return 2 * static_cast<uint64_t>(params.layout->cut_bytes()) * params.parts.size();
}

uint64_t run(const GateParams& params, Target) {
  for_each_row(params.tokens, params.size * 8, [&](int64_t row) {
    const float* const gate = params.gate + row * params.size;
    for (int64_t i = 0; i < params.size; ++i) {
      const int64_t at = row * params.size + i;
      const float x = load_element(params.dtype, params.x, at);
      store_element(params.dtype, params.x, at, x / (1 + std::exp(-gate[i])));
    }
  });
  return 0;
}

}  // namespace

uint64_t run_linear(const LinearCall& call, Target target) {
  return std::visit([&](const auto& params) { return run(params, target); }, call);
}

}  // namespace fasa::cpu
