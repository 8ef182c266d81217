// clang-format off
#include "kernels/cpu/model/packed_vector_avx2.h"
// clang-format on
#include "kernels/cpu/model/packed_whole_inl.h"

namespace fasa::cpu {

const PackedBodies kPackedBodiesAvx2 = {multiply_f32, multiply_int16, nullptr,
                                        nullptr,      unpack,         kTwoPanelRows};

}  // namespace fasa::cpu
