// clang-format off
#include "kernels/cpu/row_vector_avx2.h"
// clang-format on
#include "kernels/cpu/delta_body_inl.h"

namespace fasa::cpu {

const DeltaBodies kDeltaBodiesAvx2 = kDeltaBodies;

}  // namespace fasa::cpu
