// The platform of builds without the CUDA toolkit.
#include "offload/cuda/cuda_calls.h"

namespace fasa {

CudaPlatform cuda_platform() { return {}; }

}  // namespace fasa
