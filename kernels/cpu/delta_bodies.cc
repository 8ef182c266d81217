#include "kernels/delta_bodies.h"

namespace fasa::cpu {

const DeltaBodies& delta_bodies(Target target) {
#if defined(__x86_64__)
  switch (target) {
    case Target::kPortable:
      return kDeltaBodiesPortable;
    case Target::kAvx2:
      return kDeltaBodiesAvx2;
    case Target::kAvx512:
    case Target::kAvx512Vnni:
      return kDeltaBodiesAvx512;
  }
#endif
  static_cast<void>(target);
  return kDeltaBodiesPortable;
}

}  // namespace fasa::cpu
