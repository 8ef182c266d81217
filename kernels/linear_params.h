// Parameters of the kernels of layers with linear attention (gated delta nets), and of the gate of
// attention layers beside them.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "runtime/base/dtype.h"
#include "runtime/base/linear_shape.h"

namespace fasa {

// One sequence's tokens in a step, and its state. A sequence that passes several snapshots has a
// part up to each of them.
struct LinearPart {
  int wave = 0;       // parts of a wave run at once, behind those of the waves before
  int64_t first = 0;  // row of the step
  int64_t tokens = 0;
  bool decodes = false;        // tokens advance the state one by one, not in blocks
  int64_t position = 0;        // of the first token; at 0 the state's memory is not read
  int open = 0;                // tokens of the open block before this step
  int waiting = 0;             // decoded tokens by which the state is still to be advanced
  int64_t drafts = 0;          // the last tokens of the part, which are to wait
  std::byte* state = nullptr;  // of all layers
  // Receives each layer's state at the multiple of kLinearBlock `saved_at`, [layers, cut_bytes];
  // null: nothing is saved.
  std::byte* saved = nullptr;
  int64_t saved_at = 0;
};

// Calls work(first, count) for the parts of each wave. Parts come in order of waves.
template <typename Work>
void for_each_wave(std::span<const LinearPart> parts, const Work& work) {
  for (size_t first = 0, end = 0; first < parts.size(); first = end) {
    while (end < parts.size() && parts[end].wave == parts[first].wave) ++end;
    work(first, end - first);
  }
}

// What device kernels' launches depend on. The kernels read the parts in device memory, so that a
// step can be captured as a graph; host code does not need it.
struct LinearLaunch {
  int64_t longest = 0;                     // most tokens of a part
  bool decodes = false, prefills = false;  // whether any part does
  bool waits = false;                      // whether tokens wait before prefilled ones

  static LinearLaunch of(std::span<const LinearPart> parts) {
    LinearLaunch launch;
    for (const LinearPart& part : parts) {
      launch.longest = std::max(launch.longest, part.tokens);
      (part.decodes ? launch.decodes : launch.prefills) = true;
      launch.waits |= !part.decodes && part.waiting > 0;
    }
    return launch;
  }
};

// Depthwise causal convolution, then SiLU: y[t][c] = silu(sum over i of w[c][i] · x[t - taps + 1 +
// i][c]), where inputs before the step come from the state, which keeps the last ones. Inputs are
// rounded to the dtype first.
struct ConvolveParams {
  static constexpr const char* kName = "convolve";
  const LinearLayout* layout = nullptr;
  int layer = 0;  // among those with a state
  std::span<const LinearPart> parts = {};
  LinearLaunch launch = {};
  const float* x = nullptr;  // [tokens, channels], rows `x_stride` elements apart
  int64_t x_stride = 0;
  const float* weights = nullptr;  // [channels, taps]
  void* y = nullptr;               // [tokens, channels] of the layout's dtype
};

// The gated delta rule (arXiv 2412.06464), then a gated norm. Per value head, with the state S
// [key_dim, value_dim], q and k divided by their lengths and q by sqrt(key_dim):
//   beta = sigmoid(b);  decay = factor · softplus(a + bias)
//   S *= exp(decay);  d = beta · (v - Sᵀk);  S += k dᵀ;  o = Sᵀq
//   out = rms(o) · norm · silu(z)
struct DeltaNetParams {
  static constexpr const char* kName = "delta_net";
  static constexpr int kMaxKeyDim = 128;  // of device kernels
  const LinearLayout* layout = nullptr;
  int layer = 0;  // among those with a state
  std::span<const LinearPart> parts = {};
  LinearLaunch launch = {};
  const void* y = nullptr;        // [tokens, channels] of the layout's dtype: q, k, v of all heads
  const float* gates = nullptr;   // [tokens, 2 x value_heads]: b, then a
  const float* factor = nullptr;  // [value_heads], negative
  const float* bias = nullptr;    // [value_heads]
  const float* z = nullptr;       // [tokens, value_width], rows `z_stride` elements apart
  int64_t z_stride = 0;
  const float* norm = nullptr;  // [value_dim]
  float eps = 0;
  // Scratch of device kernels: o before the norm, [tokens, value_width], rows `z_stride` elements
  // apart. May be the convolution's x, which has been read.
  float* o = nullptr;
  void* out = nullptr;  // [tokens, value_width] of the layout's dtype
};

// x *= sigmoid(gate).
struct GateParams {
  static constexpr const char* kName = "gate";
  int64_t tokens = 0;
  int64_t size = 0;
  const float* gate = nullptr;  // [tokens, size]
  DType dtype = DType::kBF16;
  void* x = nullptr;  // [tokens, size]
};

}  // namespace fasa
