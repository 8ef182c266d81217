// clang-format off
#include "kernels/cpu/row_vector_portable.h"
// clang-format on
#include "kernels/cpu/rank_inl.h"

namespace fasa::cpu {

const RankBodies kRankBodiesPortable = kRankBodies;

}  // namespace fasa::cpu
