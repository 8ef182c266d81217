// clang-format off
#include "kernels/cpu/row_vector_avx512.h"
// clang-format on
#include "kernels/cpu/row_bodies_inl.h"

namespace fasa::cpu {

const RowBodies kRowBodiesAvx512 = bodies_of_rows();

}  // namespace fasa::cpu
