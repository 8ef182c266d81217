#include "kernels/cpu/row_bodies.h"

#include "kernels/row_format.h"

namespace fasa::cpu {

// The order of RowBodies' tables.
static_assert(RowDType::kF32 == 0 && RowDType::kF16 == 1 && RowDType::kBF16 == 2 &&
              RowDType::kInt8 == 3);
static_assert(kMaxTileTokens == kTileTokens && kMaxPageTokens == kPageTokens);

#if defined(__x86_64__)
namespace {

// bf16 dot products against f32 FMA on widened keys: equal instruction rates on Zen 4, so twice as
// many products; half as many products on Sapphire Rapids (86 and 180 GFLOP/s per core,
// latency-free loops of both).
bool bf16_dot_is_fast() { return __builtin_cpu_is("amd") != 0; }

}  // namespace
#endif

const RowBodies& row_bodies(Target target) {
#if defined(__x86_64__)
  switch (target) {
    case Target::kPortable:
      return kRowBodiesPortable;
    case Target::kAvx2:
      return kRowBodiesAvx2;
    case Target::kAvx512:
      return kRowBodiesAvx512;
    case Target::kAvx512Vnni:
      return bf16_dot_is_fast() ? kRowBodiesVnni : kRowBodiesAvx512;
  }
#endif
  static_cast<void>(target);
  return kRowBodiesPortable;
}

}  // namespace fasa::cpu
