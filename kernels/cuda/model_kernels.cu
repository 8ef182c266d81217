#include "kernels/cuda/activate_inl.h"
#include "kernels/cuda/enqueue.cuh"
#include "kernels/cuda/heads_inl.h"
#include "kernels/cuda/norm_inl.h"

namespace fasa::cuda {

template void enqueue(const AddNormParams&, StreamView);
template void enqueue(const AnglesParams&, StreamView);
template void enqueue(const HeadsParams&, StreamView);
template void enqueue(const ActivateParams&, StreamView);
template void enqueue(const AddBiasParams&, StreamView);
template void enqueue(const TakeSinksParams&, StreamView);

}  // namespace fasa::cuda
