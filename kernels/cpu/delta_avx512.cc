// clang-format off
#include "kernels/cpu/row_vector_avx512.h"
// clang-format on
#include "kernels/cpu/delta_body_inl.h"

namespace fasa::cpu {

const DeltaBodies kDeltaBodiesAvx512 = kDeltaBodies;

}  // namespace fasa::cpu
