// The CUDA device's kernels on the fake runtime (fake_cuda.h): their bodies, interpreted, replace
// the CPU's kernels. Slow: for small models.
#pragma once

#include "tests/support/fake_cuda.h"

namespace fasa {

CudaPlatform interpreted_platform(FakeCuda& fake);

}  // namespace fasa
