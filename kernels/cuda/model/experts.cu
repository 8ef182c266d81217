#include "kernels/cuda/model/experts_inl.h"

#include "kernels/cuda/enqueue.cuh"
#include "kernels/cuda/model/project_experts_inl.h"
#include "kernels/cuda/model/project_packed_experts_inl.h"

namespace fasa::cuda {

template void enqueue(const ChooseExpertsParams&, StreamView);
template void enqueue(const ArrangeExpertsParams&, StreamView);
template void enqueue(const ProjectExpertsParams&, StreamView);
template void enqueue(const ProjectPackedExpertsParams&, StreamView);
template void enqueue(const MixExpertsParams&, StreamView);

}  // namespace fasa::cuda
