// Chooses the bodies of the gated delta net by instruction set.
#pragma once

#include "kernels/delta_body_types.h"
#include "kernels/target.h"

namespace fasa::cpu {

const DeltaBodies& delta_bodies(Target target);

}  // namespace fasa::cpu
