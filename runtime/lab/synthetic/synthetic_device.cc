#include "runtime/lab/synthetic/synthetic_device.h"

#include "kernels/cpu/kernels.h"
#include "offload/operation_names.h"
#include "runtime/lab/synthetic/modelled_work.h"

namespace fasa {
namespace {

// Tables, descriptors and counters are smaller; rows and slices of a length worth modelling are
// larger. Small ones are copied for real, which changes no time.
constexpr size_t kLargeBytes = size_t{16} << 20;

}  // namespace

struct SyntheticDevice::Launchers {
  // Only its work, unless everything computes.
  template <auto kKernel, typename Params>
  static void modelled(const Params& params, StreamView stream) {
    auto& device = device_of<SyntheticDevice>(stream);
    if (device.compute_ == SyntheticCompute::kReal) {
      pass<kKernel, Params>(params, stream);
    } else {
      device.launch(stream, kernel_name(params), [params] { return modelled_work(params); });
    }
  }
  static void select(const SelectParams& params, StreamView stream) {
    auto& device = device_of<SyntheticDevice>(stream);
    device.launch(stream, kernel_name(params), [&device, params] { return device.select(params); });
  }
  // What decides what is fetched, `resolve` and `speculate`, stays real.
  static KernelTable table() {
    using Table = KernelTable;
    Table table = passed_kernels();
    table.append = modelled<&Table::append, AppendParams>;
    table.write_back = modelled<&Table::write_back, WriteBackParams>;
    table.restore = modelled<&Table::restore, RestoreParams>;
    table.select = select;
    table.gather = modelled<&Table::gather, GatherParams>;
    table.attend = modelled<&Table::attend, AttendParams>;
    table.prefill = modelled<&Table::prefill, PrefillParams>;
    return table;
  }
};

SyntheticDevice::SyntheticDevice(EmulatedDevice& inner, const TraceTiling& tiling, int64_t tokens,
                                 SyntheticCompute compute)
    : LanedDevice(inner), emulated_(inner), tiling_(tiling), tokens_(tokens), compute_(compute) {}

const KernelTable& SyntheticDevice::kernels() const {
  static const KernelTable table = Launchers::table();
  return table;
}

KernelWork SyntheticDevice::select(const SelectParams& params) {
  const KernelWork work =
      compute_ == SyntheticCompute::kReal ? cpu::select(params) : modelled_work(params);
  const int kv_heads = params.step.layout.kv_heads;
  const int ahead = params.ahead;
  const int chunks = params.step.layout.slice.prefix(params.score_dims).dims / 2;
  for (int sequence = 0; sequence < params.step.count; ++sequence) {
    const SequenceDesc& desc = params.step.sequences[sequence];
    const SelectPlan plan = plan_selection(params, desc);
    for (int head = 0; head < kv_heads; ++head) {
      const int64_t index = int64_t{sequence} * kv_heads + head;
      const bool decodes = desc.mode == StepMode::kDecode;
      params.set_sizes[index] = decodes ? plan.budget : 0;
      if (params.near.capacity > 0 && compute_ == SyntheticCompute::kModelled) {
        params.near.sizes[index] = decodes ? plan.near : 0;
      }
      if (!decodes) continue;
      const TracePlace place{.step = desc.start - tokens_,
                             .sequence = sequence,
                             .layer = params.step.layer,
                             .kv_head = head};
      int32_t* set = params.sets + index * params.set_capacity;
      if (ahead == 0) {
        tiling_.true_set(place, plan, set);
        continue;
      }
      const int all = params.step.layout.slice.dims / 2;
      ++guesses_asked_;
      if (!tiling_.guessed_set(place, ahead, chunks == all ? 0 : chunks, plan, set)) {
        ++guesses_missing_;
      }
    }
  }
  overlap_.observe(params);
  return work;
}

void SyntheticDevice::copy(void* destination, const void* source, size_t bytes, CopyKind kind,
                           StreamView stream) {
  const bool large =
      allocation_bytes(destination) >= kLargeBytes || allocation_bytes(source) >= kLargeBytes;
  if (compute_ == SyntheticCompute::kModelled && large) {
    emulated_.model_copy(bytes, kind, within(stream));
  } else {
    LanedDevice::copy(destination, source, bytes, kind, stream);
  }
}

}  // namespace fasa
