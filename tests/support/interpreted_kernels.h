// The kernels of the CUDA device on the fake runtime (fake_cuda.h): their bodies, interpreted, in
// place of the CPU's. Slow: for small models.
#pragma once

#include "tests/support/fake_cuda.h"

namespace fasa {

CudaPlatform interpreted_platform(FakeCuda& fake);

}  // namespace fasa
