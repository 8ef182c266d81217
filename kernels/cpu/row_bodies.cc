#include "kernels/cpu/row_bodies.h"

#include "runtime/base/dtype.h"

namespace fasa::cpu {

// The order of RowBodies' tables.
static_assert(static_cast<int>(DType::kF32) == 0 && static_cast<int>(DType::kF16) == 1 &&
              static_cast<int>(DType::kBF16) == 2);
static_assert(kMaxTileTokens == kTileTokens && kMaxPageTokens == kPageTokens);

// BF16's dot product has no body of its own: on Sapphire Rapids vdpbf16ps does 86 GFLOP/s a core
// where f32 FMA does 180 (latency-free loops of both), so scores through it were slower even
// without the rounding of queries that it needs.
const RowBodies& row_bodies(Target target) {
#if defined(__x86_64__)
  switch (target) {
    case Target::kPortable:
      return kRowBodiesPortable;
    case Target::kAvx2:
      return kRowBodiesAvx2;
    case Target::kAvx512:
    case Target::kAvx512Vnni:
      return kRowBodiesAvx512;
  }
#endif
  static_cast<void>(target);
  return kRowBodiesPortable;
}

}  // namespace fasa::cpu
