#include "kernels/cuda/read_rows_inl.h"

#include "kernels/cuda/enqueue.cuh"

namespace fasa::cuda {

template void enqueue(const ReadRowsParams&, StreamView);

}  // namespace fasa::cuda
