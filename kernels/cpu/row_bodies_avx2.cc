// clang-format off
#include "kernels/cpu/row_vector_avx2.h"
// clang-format on
#include "kernels/cpu/row_bodies_inl.h"

namespace fasa::cpu {

const RowBodies kRowBodiesAvx2 = bodies_of_rows();

}  // namespace fasa::cpu
