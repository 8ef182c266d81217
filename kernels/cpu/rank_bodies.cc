#include "kernels/rank_bodies.h"

namespace fasa::cpu {

const RankBodies& rank_bodies(Target target) {
#if defined(__x86_64__)
  switch (target) {
    case Target::kPortable:
      return kRankBodiesPortable;
    case Target::kAvx2:
      return kRankBodiesAvx2;
    case Target::kAvx512:
    case Target::kAvx512Vnni:
      return kRankBodiesAvx512;
  }
#endif
  static_cast<void>(target);
  return kRankBodiesPortable;
}

}  // namespace fasa::cpu
