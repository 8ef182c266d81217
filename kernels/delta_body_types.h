// Inner loops of the gated delta net: plain structs and a table of function pointers per
// instruction set. Included by files compiled for one instruction set, so it includes no other
// header of the project and none with inline functions.
#pragma once

#include <stdint.h>

namespace fasa::cpu {

inline constexpr int kDeltaColumns = 16;  // widths of matrices are multiples of it

// out[rows][columns] = scale · out + a[rows][depth] · b[depth][columns], all f32. With scale 0,
// `out` is not read. A row's bits depend on that row of `a` and `out` alone: sums run in order.
struct DeltaProduct {
  int64_t rows = 0;
  int64_t depth = 0;
  int64_t columns = 0;
  const float* a = nullptr;
  int64_t a_stride = 0;  // elements between rows; here and below
  const float* b = nullptr;
  int64_t b_stride = 0;
  float scale = 0;
  float* out = nullptr;
  int64_t out_stride = 0;
};

// One token of one head: state *= decay; d = beta · (v - stateᵀk); state += k dᵀ; out = stateᵀq.
struct DeltaStep {
  int64_t key_dim = 0;
  int64_t columns = 0;     // of the state
  float* state = nullptr;  // [key_dim][columns]
  const float* q = nullptr;
  const float* k = nullptr;
  const float* v = nullptr;  // [columns], as `out`
  float decay = 0;
  float beta = 0;
  float* out = nullptr;
};

struct DeltaBodies {
  void (*multiply)(const DeltaProduct&);
  void (*step)(const DeltaStep&);
};

extern const DeltaBodies kDeltaBodiesPortable;
extern const DeltaBodies kDeltaBodiesAvx2;
extern const DeltaBodies kDeltaBodiesAvx512;

}  // namespace fasa::cpu
