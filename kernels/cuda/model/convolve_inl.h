// The convolution of layers with linear attention: a thread per channel and some tokens of one
// sequence. Neighbours are neighbouring channels.
#pragma once

#include "kernels/cuda/model/activate_inl.h"
#include "kernels/linear_params.h"

namespace fasa::cuda {

struct ConvolveKernel {
  static constexpr const char* kName = "convolve";
  static constexpr int kThreads = 128;
  // A block's tokens. Later blocks of a sequence do not read the state, so its first block may
  // write it.
  static constexpr int kTokens = 16;
  static_assert(kTokens >= kMaxLinearTaps - 1);

  ConvolveParams params;
  LinearLayout layout;

  FASA_DEVICE void operator()() const {
    const int64_t channel = int64_t{simt::block_x()} * kThreads + simt::thread_index();
    const LinearPart part = params.parts.data()[simt::block_y()];
    const int64_t first = int64_t{simt::block_z()} * kTokens;
    if (channel >= channels() || first >= part.tokens) return;
    float weights[kMaxLinearTaps];
    FASA_UNROLL for (int i = 0; i < kMaxLinearTaps; ++i) {
      weights[i] = i < taps() ? params.weights[channel * taps() + i] : 0;
    }
    const int64_t last = first + kTokens < part.tokens ? first + kTokens : part.tokens;
    for (int64_t token = first; token < last; ++token) {
      float sum = 0;
      FASA_UNROLL for (int i = 0; i < kMaxLinearTaps; ++i) {
        if (i < taps()) sum += weights[i] * input(part, token - taps() + 1 + i, channel);
      }
      store(dtype(), params.y, (part.first + token) * channels() + channel,
            activated(Activation::kSilu, sum));
    }
    if (first == 0) keep(part, channel);
  }

 private:
  FASA_DEVICE int taps() const { return layout.shape().taps; }
  FASA_DEVICE int64_t channels() const { return layout.shape().channels(); }
  FASA_DEVICE DType dtype() const { return layout.shape().dtype; }
  FASA_DEVICE std::byte* kept(const LinearPart& part) const {
    return part.state + params.layer * layout.layer_bytes() + layout.inputs();
  }

  FASA_DEVICE std::byte* waiting_input(const LinearPart& part, int64_t token,
                                       int64_t channel) const {
    return part.state + params.layer * layout.layer_bytes() + layout.waiting_input(token, channel);
  }

  // The input of a token of the part; those before it, at -1, -2, ..., come from the state, those
  // of waiting tokens last.
  FASA_DEVICE float input(const LinearPart& part, int64_t token, int64_t channel) const {
    if (token < 0) {
      if (part.position == 0) return 0;
      const int64_t of_kept = token + taps() - 1 + part.waiting;
      const int64_t waiting = of_kept - (taps() - 1);
      if (waiting >= 0) return load(dtype(), waiting_input(part, waiting, channel), 0);
      return load(dtype(), kept(part), of_kept * channels() + channel);
    }
    const float x = params.x[(part.first + token) * params.x_stride + channel];
    return dtype() == DType::kF32 ? x : simt::float_of(element_bits(dtype(), x) << 16);
  }

  // Stores the last inputs before token `end`. In place this is right, because the inputs move
  // towards the first.
  FASA_DEVICE void keep_before(const LinearPart& part, int64_t end, int64_t channel,
                               std::byte* to) const {
    for (int i = 0; i + 1 < taps(); ++i) {
      store(dtype(), to, i * channels() + channel, input(part, end - taps() + 1 + i, channel));
    }
  }
  FASA_DEVICE void keep(const LinearPart& part, int64_t channel) const {
    const int64_t saved = part.saved_at - part.position;
    if (part.saved != nullptr && saved > 0 && saved <= part.tokens) {
      keep_before(part, saved, channel,
                  part.saved + params.layer * layout.cut_bytes() + layout.inputs());
    }
    const int64_t end = part.tokens - part.drafts;
    keep_before(part, end, channel, kept(part));
    for (int64_t i = 0; i < part.drafts; ++i) {
      store(dtype(), waiting_input(part, i, channel), 0, input(part, end + i, channel));
    }
  }
};

template <typename Launcher>
void start(const ConvolveParams& params, const Launcher& launch) {
  constexpr int kThreads = ConvolveKernel::kThreads, kTokens = ConvolveKernel::kTokens;
  const int channels = params.layout->shape().channels();
  launch(ConvolveKernel{params, *params.layout},
         {.x = (channels + kThreads - 1) / kThreads,
          .y = static_cast<int>(params.parts.size()),
          .z = static_cast<int>((params.launch.longest + kTokens - 1) / kTokens)});
}

}  // namespace fasa::cuda
