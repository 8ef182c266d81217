// AVX-512 with dot products of bf16, for processors on which they are faster than f32 FMA.
#define FASA_BF16_DOT 1
// clang-format off
#include "kernels/cpu/rows/row_vector_avx512.h"
// clang-format on
#include "kernels/cpu/rows/row_bodies_inl.h"

namespace fasa::cpu {

const RowBodies kRowBodiesVnni = kRowBodies;

}  // namespace fasa::cpu
