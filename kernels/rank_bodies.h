// Chooses the bodies of calibration's ranking by instruction set.
#pragma once

#include "kernels/rank_body_types.h"
#include "kernels/target.h"

namespace fasa::cpu {

const RankBodies& rank_bodies(Target target);

}  // namespace fasa::cpu
