#include "kernels/cuda/enqueue.cuh"
#include "kernels/cuda/model/activate_inl.h"
#include "kernels/cuda/model/heads_inl.h"
#include "kernels/cuda/model/norm_inl.h"

namespace fasa::cuda {

template void enqueue(const AddNormParams&, StreamView);
template void enqueue(const AnglesParams&, StreamView);
template void enqueue(const HeadsParams&, StreamView);
template void enqueue(const ActivateParams&, StreamView);
template void enqueue(const AddBiasParams&, StreamView);
template void enqueue(const TakeSinksParams&, StreamView);

}  // namespace fasa::cuda
