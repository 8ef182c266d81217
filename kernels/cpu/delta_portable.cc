// clang-format off
#include "kernels/cpu/row_vector_portable.h"
// clang-format on
#include "kernels/cpu/delta_body_inl.h"

namespace fasa::cpu {

const DeltaBodies kDeltaBodiesPortable = kDeltaBodies;

}  // namespace fasa::cpu
