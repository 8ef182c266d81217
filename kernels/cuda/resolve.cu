#include "kernels/cuda/resolve_inl.h"

#include "kernels/cuda/enqueue.cuh"

namespace fasa::cuda {

template void enqueue(const ResolveParams&, StreamView);
template void enqueue(const FetchParams&, StreamView);

}  // namespace fasa::cuda
