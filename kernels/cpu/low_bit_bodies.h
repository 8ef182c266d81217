// Chooses the bodies that attend to pages of value codes by instruction set.
#pragma once

#include "kernels/cpu/low_bit_body_types.h"
#include "kernels/target.h"

namespace fasa::cpu {

const LowBitBodies& low_bit_bodies(Target target);

}  // namespace fasa::cpu
