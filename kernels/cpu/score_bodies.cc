#include "kernels/cpu/score_bodies.h"

namespace fasa::cpu {

const ScoreBodies& score_bodies(Target target) {
  switch (target) {
#if defined(__x86_64__)
    case Target::kAvx2:
      return kScoreAvx2;
    case Target::kAvx512:
      return kScoreAvx512;
    case Target::kAvx512Vnni:
      return kScoreVnni;
#endif
    default:
      return kScorePortable;
  }
}

}  // namespace fasa::cpu
