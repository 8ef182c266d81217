#include "tests/support/interpreted_kernels.h"

#include "kernels/cuda/activate_inl.h"
#include "kernels/cuda/append_inl.h"
#include "kernels/cuda/attend_inl.h"
#include "kernels/cuda/claim_slots_inl.h"
#include "kernels/cuda/convolve_inl.h"
#include "kernels/cuda/delta_inl.h"
#include "kernels/cuda/experts_inl.h"
#include "kernels/cuda/gather_inl.h"
#include "kernels/cuda/heads_inl.h"
#include "kernels/cuda/norm_inl.h"
#include "kernels/cuda/prefill_inl.h"
#include "kernels/cuda/project_experts_inl.h"
#include "kernels/cuda/project_packed_experts_inl.h"
#include "kernels/cuda/read_rows_inl.h"
#include "kernels/cuda/resolve_inl.h"
#include "kernels/cuda/restore_inl.h"
#include "kernels/cuda/select_inl.h"
#include "kernels/cuda/unpack_inl.h"
#include "kernels/cuda/write_back_inl.h"
#include "tests/support/simt_interpreter.h"

namespace fasa {

CudaPlatform interpreted_platform(FakeCuda& fake) {
  return fake.platform([](const KernelCall& call) {
    SimtInterpreter interpreter;
    std::visit([&](const auto& params) { cuda::start(params, SimtLauncher(interpreter)); }, call);
  });
}

}  // namespace fasa
