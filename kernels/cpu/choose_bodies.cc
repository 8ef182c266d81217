// Which bodies a target has: the one place to name a new instruction set.
#include <algorithm>
#include <cstddef>

#include "kernels/cpu/low_bit_bodies.h"
#include "kernels/cpu/rows/row_bodies.h"
#include "kernels/cpu/select/score_bodies.h"
#include "kernels/delta_bodies.h"
#include "kernels/rank_bodies.h"
#include "kernels/row_format.h"

namespace fasa::cpu {

// The order of RowBodies' tables.
static_assert(RowDType::kF32 == 0 && RowDType::kF16 == 1 && RowDType::kBF16 == 2 &&
              RowDType::kInt8 == 3);
static_assert(kMaxTileTokens == kTileTokens && kMaxPageTokens == kPageTokens);

#if defined(__x86_64__)

const ScoreBodies& score_bodies(Target target) {
  return on_target(target, {&kScorePortable, &kScoreAvx2, &kScoreAvx512, &kScoreVnni});
}

const LowBitBodies& low_bit_bodies(Target target) {
  return on_target(target, {&kLowBitPortable, &kLowBitAvx2, &kLowBitAvx512, &kLowBitVnni});
}

const RankBodies& rank_bodies(Target target) {
  return on_target(target, {&kRankBodiesPortable, &kRankBodiesAvx2, &kRankBodiesAvx512});
}

const DeltaBodies& delta_bodies(Target target) {
  return on_target(target, {&kDeltaBodiesPortable, &kDeltaBodiesAvx2, &kDeltaBodiesAvx512});
}

const RowBodies& row_bodies(Target target) {
  // bf16 dot products against f32 FMA on widened keys: equal instruction rates on Zen 4, so twice
  // as many products; half as many products on Sapphire Rapids (86 and 180 GFLOP/s per core,
  // latency-free loops of both).
  const bool bf16_dot_is_fast = __builtin_cpu_is("amd") != 0;
  const RowBodies& vnni = bf16_dot_is_fast ? kRowBodiesVnni : kRowBodiesAvx512;
  static const RowBodies amx = [&] {
    RowBodies made = vnni;
    made.prefill_pairs[RowDType::kBF16] = prefill_bf16_rows_amx;
    made.prefill_pairs[RowDType::kInt8] = prefill_int8_rows_amx;
    made.splits_queries = true;
    return made;
  }();
  return on_target(target, {&kRowBodiesPortable, &kRowBodiesAvx2, &kRowBodiesAvx512, &vnni, &amx});
}

#else

const ScoreBodies& score_bodies(Target) { return kScorePortable; }
const LowBitBodies& low_bit_bodies(Target) { return kLowBitPortable; }
const RankBodies& rank_bodies(Target) { return kRankBodiesPortable; }
const DeltaBodies& delta_bodies(Target) { return kDeltaBodiesPortable; }
const RowBodies& row_bodies(Target) { return kRowBodiesPortable; }

#endif

}  // namespace fasa::cpu
