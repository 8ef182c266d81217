#include "tests/support/interpreted_kernels.h"

#include "kernels/cuda/append_inl.h"
#include "kernels/cuda/attend_inl.h"
#include "kernels/cuda/claim_slots_inl.h"
#include "kernels/cuda/gather_inl.h"
#include "kernels/cuda/model/activate_inl.h"
#include "kernels/cuda/model/convolve_inl.h"
#include "kernels/cuda/model/delta_inl.h"
#include "kernels/cuda/model/experts_inl.h"
#include "kernels/cuda/model/heads_inl.h"
#include "kernels/cuda/model/norm_inl.h"
#include "kernels/cuda/model/project_experts_inl.h"
#include "kernels/cuda/model/project_packed_experts_inl.h"
#include "kernels/cuda/model/unpack_inl.h"
#include "kernels/cuda/prefill_inl.h"
#include "kernels/cuda/read_rows_inl.h"
#include "kernels/cuda/resolve_inl.h"
#include "kernels/cuda/restore_inl.h"
#include "kernels/cuda/select/select_inl.h"
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
