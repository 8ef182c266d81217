// clang-format off
#include "kernels/cpu/row_vector_portable.h"
// clang-format on
#include "kernels/cpu/row_bodies_inl.h"

namespace fasa::cpu {

const RowBodies kRowBodiesPortable = bodies_of_rows();

}  // namespace fasa::cpu
