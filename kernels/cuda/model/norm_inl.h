// Norms: a block per row, or a warp per head. Two passes, as on the processor: a layer norm
// subtracts the exact mean, not a running estimate. A row's bits depend only on the row.
#pragma once

#include "kernels/cuda/element_inl.h"
#include "kernels/cuda/simt.h"
#include "kernels/model_params.h"

namespace fasa::cuda {

// Returns the same in every thread; `warp_sums`: shared, one per warp, may be reused on return.
FASA_DEVICE float block_sum(float value, float* warp_sums) {
  value = simt::warp_sum(value);
  if (simt::lane() == 0) warp_sums[simt::warp()] = value;
  simt::sync_block();
  const float sum = simt::lane() < simt::block_warps() ? warp_sums[simt::lane()] : 0.0f;
  simt::sync_block();
  return simt::warp_sum(sum);
}

// y = (x - mean) * scale * weight + bias.
struct NormScale {
  float mean = 0;
  float scale = 1;

  // `sum(f)` adds up f over the elements of all threads that share the row.
  template <typename Sum>
  FASA_DEVICE static NormScale of(const NormParams& norm, int64_t size, const Sum& sum) {
    const auto count = static_cast<float>(size);
    NormScale made;
    if (norm.kind == NormKind::kLayer) made.mean = sum([](float x) { return x; }) / count;
    const float mean = made.mean;
    const float squares = sum([mean](float x) { return (x - mean) * (x - mean); });
    made.scale = 1.0f / simt::square_root(squares / count + norm.eps);
    return made;
  }
  FASA_DEVICE float operator()(const NormParams& norm, float x, int64_t i) const {
    const float y = weighted(x, norm.weight == nullptr ? 1.0f : norm.weight[i]);
    return norm.bias == nullptr || norm.none() ? y : y + norm.bias[i];
  }
  FASA_DEVICE float weighted(float x, float weight) const { return (x - mean) * scale * weight; }
};

// kWidth adjacent elements of a row.
template <int kWidth>
struct NormElements {
  float x[kWidth];       // of the residual
  float addend[kWidth];  // and its bias
  float weights[kWidth];
  float addend_weights[kWidth];
};

// `otherwise`: if there are none.
template <int kWidth>
FASA_DEVICE void load_floats(const float* from, int at, float otherwise, float (&to)[kWidth]) {
  FASA_UNROLL
  for (int j = 0; j < kWidth; ++j) to[j] = otherwise;
  if (from == nullptr) return;
  if constexpr (kWidth == 4) {
    const auto word = *reinterpret_cast<const simt::Word16*>(from + at);
    FASA_UNROLL
    for (int j = 0; j < kWidth; ++j) to[j] = simt::float_of(word.words[j]);
  } else {
    FASA_UNROLL
    for (int j = 0; j < kWidth; ++j) to[j] = from[at + j];
  }
}
template <int kWidth>
FASA_DEVICE void add_floats(const float* from, int at, float (&to)[kWidth]) {
  if (from == nullptr) return;
  float added[kWidth];
  load_floats(from, at, 0, added);
  FASA_UNROLL
  for (int j = 0; j < kWidth; ++j) to[j] += added[j];
}
template <int kWidth>
FASA_DEVICE void store_floats(DType dtype, void* to, int64_t at, const float (&from)[kWidth]) {
  if constexpr (kWidth == 4) {
    uint32_t bits[kWidth];
    FASA_UNROLL
    for (int j = 0; j < kWidth; ++j) bits[j] = element_bits(dtype, from[j]);
    if (dtype == DType::kF32) {
      reinterpret_cast<simt::Word16*>(to)[at / 4] = {{bits[0], bits[1], bits[2], bits[3]}};
    } else {
      reinterpret_cast<simt::Word8*>(to)[at / 4] = {
          {bits[0] | bits[1] << 16, bits[2] | bits[3] << 16}};
    }
  } else {
    FASA_UNROLL
    for (int j = 0; j < kWidth; ++j) store(dtype, to, at + j, from[j]);
  }
}

// One block per row. A thread has the same elements in every pass: the first ones in registers,
// with all their loads in flight at once; the others of a long row are read again. Instructions
// count as much as loads do: in a decode step one multiprocessor works on a row.
template <int kBlockThreads, int kWidth>
struct AddNormKernel {
  static constexpr const char* kName = "add_norm";
  static constexpr int kThreads = kBlockThreads;
  static constexpr int kHeld = 4;
  using Elements = NormElements<kWidth>;

  AddNormParams params;

  FASA_DEVICE void operator()() const {
    const int64_t row = simt::block_x();
    const int64_t token = params.tokens == nullptr ? row : params.tokens[row];
    Row mine(params, token);
    if (params.order == AddOrder::kAddThenNorm) add(mine);
    normalise(mine, row);
    if (params.order == AddOrder::kNormThenAdd) add(mine);
  }

 private:
  class Row {
   public:
    FASA_DEVICE Row(const AddNormParams& params, int64_t token)
        : params_(params),
          size_(static_cast<int>(params.size)),
          residual_(params.residual + token * params.size),
          addend_(params.addend == nullptr ? nullptr : params.addend + token * params.size) {
      FASA_UNROLL
      for (int k = 0; k < kHeld; ++k) {
        if (index(k) < size_) load(index(k), held_[k]);
      }
      FASA_UNROLL
      for (int k = 0; k < kHeld; ++k) {
        if (index(k) < size_) add_floats(params_.bias, index(k), held_[k].addend);
      }
    }
    FASA_DEVICE bool adds() const { return addend_ != nullptr; }
    FASA_DEVICE float* residual() const { return residual_; }

    // Calls f(index of the first, elements) for this thread's elements.
    template <typename F>
    FASA_DEVICE void each(const F& f) {
      FASA_UNROLL
      for (int k = 0; k < kHeld; ++k) {
        if (index(k) < size_) f(index(k), held_[k]);
      }
      FASA_NO_UNROLL
      for (int i = index(kHeld); i < size_; i += kThreads * kWidth) {
        Elements read = {};
        load(i, read);
        add_floats(params_.bias, i, read.addend);
        f(i, read);
      }
    }

   private:
    FASA_DEVICE static int index(int k) { return (simt::thread_index() + k * kThreads) * kWidth; }
    FASA_DEVICE void load(int i, Elements& to) const {
      load_floats(residual_, i, 0, to.x);
      load_floats(addend_, i, 0, to.addend);
      load_floats(params_.norm.weight, i, 1, to.weights);
      load_floats(params_.addend_norm.weight, i, 1, to.addend_weights);
    }
    const AddNormParams& params_;
    const int size_;
    float* const residual_;
    const float* const addend_;
    Elements held_[kHeld];
  };

  FASA_DEVICE void add(Row& row) const {
    if (!row.adds()) return;
    const float factor = params.factor == nullptr ? 1.0f : *params.factor;
    const NormScale scale = scale_of(params.addend_norm, row, &Elements::addend);
    row.each([&](int i, Elements& of) {
      float y[kWidth];
      finish(params.addend_norm, scale, i, of.addend, of.addend_weights, y);
      FASA_UNROLL
      for (int j = 0; j < kWidth; ++j) of.x[j] = (of.x[j] + params.scale * y[j]) * factor;
      store_floats(DType::kF32, row.residual(), i, of.x);
    });
  }
  FASA_DEVICE void normalise(Row& row, int64_t to) const {
    const NormScale scale = scale_of(params.norm, row, &Elements::x);
    row.each([&](int i, const Elements& of) {
      float y[kWidth];
      finish(params.norm, scale, i, of.x, of.weights, y);
      store_floats(params.dtype, params.out, to * params.size + i, y);
    });
  }
  FASA_DEVICE static void finish(const NormParams& norm, const NormScale& scale, int i,
                                 const float (&x)[kWidth], const float (&weights)[kWidth],
                                 float (&y)[kWidth]) {
    FASA_UNROLL
    for (int j = 0; j < kWidth; ++j) y[j] = scale.weighted(x[j], weights[j]);
    add_floats(norm.none() ? nullptr : norm.bias, i, y);
  }
  FASA_DEVICE NormScale scale_of(const NormParams& norm, Row& row,
                                 float (Elements::*values)[kWidth]) const {
    if (norm.none()) return {};
    auto* const warp_sums = reinterpret_cast<float*>(simt::shared_memory());
    return NormScale::of(norm, params.size, [&](const auto& term) {
      float sum = 0;
      row.each([&](int, const Elements& of) {
        FASA_UNROLL
        for (int j = 0; j < kWidth; ++j) sum += term((of.*values)[j]);
      });
      return block_sum(sum, warp_sums);
    });
  }
};

// Whether rows can be read in words of four elements.
inline bool in_quads(const AddNormParams& params) {
  const auto bits = [](const void* at) { return reinterpret_cast<uintptr_t>(at); };
  const uintptr_t all = bits(params.residual) | bits(params.addend) | bits(params.bias) |
                        bits(params.addend_norm.weight) | bits(params.norm.weight) |
                        bits(params.out);
  return params.size % 4 == 0 && all % sizeof(simt::Word16) == 0;
}

// The row's size, not the number of rows, chooses the kernel.
template <typename Launcher>
void start(const AddNormParams& params, const Launcher& launch) {
  const auto start = [&]<int kThreads, int kWidth>() {
    launch(AddNormKernel<kThreads, kWidth>{params},
           {.x = static_cast<int>(params.rows),
            .shared_bytes = kThreads / simt::kWarpThreads * int64_t{sizeof(float)}});
  };
  if (!in_quads(params)) return start.template operator()<128, 1>();
  if (params.size <= 1024) return start.template operator()<128, 4>();
  start.template operator()<512, 4>();
}

}  // namespace fasa::cuda
