// The launchers of a model's own work on the CUDA device, see kernels/model_params.h and kernels.h.
#pragma once

#include "kernels/model_table.h"

namespace fasa::cuda {

// Rows up to which reading the weights takes longer than multiplying without tensor cores.
inline constexpr int64_t kFewRows = 16;

// The kernels' own, without cuBLASLt.
void project(const ProjectParams& params, StreamView stream);
void add_norm(const AddNormParams& params, StreamView stream);
void angles(const AnglesParams& params, StreamView stream);
void heads(const HeadsParams& params, StreamView stream);
void activate(const ActivateParams& params, StreamView stream);
void add_bias(const AddBiasParams& params, StreamView stream);

}  // namespace fasa::cuda
