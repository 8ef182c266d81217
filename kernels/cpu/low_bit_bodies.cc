#include "kernels/cpu/low_bit_bodies.h"

namespace fasa::cpu {

const LowBitBodies& low_bit_bodies(Target target) {
  switch (target) {
#if defined(__x86_64__)
    case Target::kAvx2:
      return kLowBitAvx2;
    case Target::kAvx512:
      return kLowBitAvx512;
    case Target::kAvx512Vnni:
      return kLowBitVnni;
#endif
    default:
      return kLowBitPortable;
  }
}

}  // namespace fasa::cpu
