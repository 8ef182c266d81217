// Fused bf16 pairs, and a tensor-core product of a warp: d[16][8] += a[16][16] b[16][8], a and b
// f16 or bf16, d f32.
// Lane l holds, with row = l / 4 and c = 2 (l % 4), pairs with the lower index in the low half:
//   a[0] = a[row][c, c + 1]   a[1] = a[row + 8][c, c + 1]   a[2], a[3]: columns c + 8, c + 9
//   b[0] = b[c, c + 1][row]   b[1] = b[c + 8, c + 9][row]
//   d[0], d[1] = d[row][c, c + 1]   d[2], d[3] = d[row + 8][c, c + 1]
// Subnormal f16 are not flushed, on the hardware as well. The order of the f32 sums is unspecified.
#pragma once

#include "kernels/cuda/element_inl.h"
#include "kernels/cuda/simt.h"

namespace fasa::cuda {

#if defined(__CUDACC__)

FASA_DEVICE void mma_f16(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#else
  for (int half = 0; half < 2; ++half) {  // a product of Turing has half the depth
    asm volatile(
        "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5}, {%6}, "
        "{%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[2 * half]), "r"(a[2 * half + 1]), "r"(b[half]));
  }
#endif
}

// Not on GPUs older than 8.0, whose launchers take another kernel.
FASA_DEVICE void mma_bf16(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#else
  __trap();
#endif
}

// a * b + c of pairs, each rounded once. Not on GPUs older than 8.0.
FASA_DEVICE uint32_t bf16_fused(uint32_t a, uint32_t b, uint32_t c) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
  uint32_t d;
  asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(c));
  return d;
#else
  __trap();
#endif
}

#else

FASA_DEVICE uint32_t bf16_fused(uint32_t a, uint32_t b, uint32_t c) {
  uint32_t d = 0;
  for (int half = 0; half < 32; half += 16) {
    const auto of = [half](uint32_t pair) { return simt::float_of(pair >> half << 16); };
    d |= uint32_t{bf16_from_f32(simt::fused(of(a), of(b), of(c)))} << half;
  }
  return d;
}

template <float (*kFloatOf)(uint16_t)>
struct MmaOperands {
  float* d;
  const uint32_t* a;
  const uint32_t* b;

  static float half(uint32_t pair, int which) {
    return kFloatOf(static_cast<uint16_t>(pair >> (16 * which)));
  }
};

template <float (*kFloatOf)(uint16_t)>
void emulated_mma(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  using Operands = MmaOperands<kFloatOf>;
  Operands mine = {d, a, b};
  simt::machine().collective(simt::kFullWarp, &mine, [](void* const* lanes, uint32_t mask) {
    float left[16][16];
    float right[16][8];
    simt::for_each_lane<Operands>(lanes, mask, [&](int lane, Operands& of) {
      const int row = lane / 4;
      const int c = lane % 4 * 2;
      for (int k = 0; k < 4; ++k) {
        for (int which = 0; which < 2; ++which) {
          left[row + k % 2 * 8][c + k / 2 * 8 + which] = Operands::half(of.a[k], which);
          if (k < 2) right[c + k * 8 + which][row] = Operands::half(of.b[k], which);
        }
      }
    });
    simt::for_each_lane<Operands>(lanes, mask, [&](int lane, Operands& of) {
      for (int i = 0; i < 4; ++i) {
        const int row = lane / 4 + i / 2 * 8;
        for (int k = 0; k < 16; ++k) of.d[i] += left[row][k] * right[k][lane % 4 * 2 + i % 2];
      }
    });
  });
}

FASA_DEVICE void mma_f16(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  emulated_mma<f32_from_f16>(d, a, b);
}
FASA_DEVICE void mma_bf16(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  emulated_mma<f32_from_bf16>(d, a, b);
}

#endif

}  // namespace fasa::cuda
