// clang-format off
#include "kernels/cpu/row_vector_avx512.h"
// clang-format on
#include "kernels/cpu/rank_inl.h"

namespace fasa::cpu {

const RankBodies kRankBodiesAvx512 = kRankBodies;

}  // namespace fasa::cpu
