#include "tests/support/interpreted_kernels.h"

#include "kernels/cuda/append_inl.h"
#include "kernels/cuda/attend_inl.h"
#include "kernels/cuda/gather_inl.h"
#include "kernels/cuda/prefill_inl.h"
#include "kernels/cuda/project_inl.h"
#include "kernels/cuda/read_rows_inl.h"
#include "kernels/cuda/resolve_inl.h"
#include "kernels/cuda/restore_inl.h"
#include "kernels/cuda/select_inl.h"
#include "kernels/cuda/speculate_inl.h"
#include "kernels/cuda/write_back_inl.h"
#include "tests/support/simt_interpreter.h"

namespace fasa {
namespace {

template <typename Params>
using Launch = void (*)(const Params&, const SimtLauncher&);

template <typename Params, Launch<Params> kLaunch>
void enqueue(const Params& params, StreamView stream) {
  FakeCuda::of(stream).enqueue(*static_cast<FakeCuda::FakeStream*>(stream.native), [params] {
    SimtInterpreter interpreter;
    kLaunch(params, SimtLauncher(interpreter));
  });
}

constexpr KernelTable kTable = {
    .append = enqueue<AppendParams, cuda::launch_append<SimtLauncher>>,
    .write_back = enqueue<WriteBackParams, cuda::launch_write_back<SimtLauncher>>,
    .restore = enqueue<RestoreParams, cuda::launch_restore<SimtLauncher>>,
    .select = enqueue<SelectParams, cuda::launch_select<SimtLauncher>>,
    .resolve = enqueue<ResolveParams, cuda::launch_resolve<SimtLauncher>>,
    .speculate = enqueue<SpeculateParams, cuda::launch_speculate<SimtLauncher>>,
    .gather = enqueue<GatherParams, cuda::launch_gather<SimtLauncher>>,
    .attend = enqueue<AttendParams, cuda::launch_attend<SimtLauncher>>,
    .prefill = enqueue<PrefillParams, cuda::launch_prefill<SimtLauncher>>,
    .read_rows = enqueue<ReadRowsParams, cuda::launch_read_rows<SimtLauncher>>,
    .select_scratch = [](const CacheLayout& layout, int count, int set_capacity) {
      return static_cast<uint64_t>(cuda::SelectScratch::of(layout, count, set_capacity).bytes());
    }};

}  // namespace

CudaPlatform interpreted_platform(FakeCuda& fake) {
  CudaPlatform platform = fake.platform();
  static ModelKernelTable model = *platform.model_kernels;
  model.project = enqueue<ProjectParams, cuda::launch_project<SimtLauncher>>;
  platform.kernels = &kTable;
  platform.model_kernels = &model;
  return platform;
}

}  // namespace fasa
