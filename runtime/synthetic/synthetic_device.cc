#include "runtime/synthetic/synthetic_device.h"

#include <type_traits>
#include <variant>

#include "kernels/run_on_host.h"
#include "runtime/synthetic/modelled_work.h"

namespace fasa {
namespace {

// Smaller copies are made for real: tables, descriptors and counters. Larger ones are rows and
// slices. The modelled time is the same for both.
constexpr size_t kLargeBytes = size_t{16} << 20;

}  // namespace

SyntheticDevice::SyntheticDevice(EmulatedDevice& inner, const TraceTiling* tiling, int64_t tokens,
                                 SyntheticCompute compute)
    : WrappedDevice(inner), emulated_(inner), tiling_(tiling), tokens_(tokens), compute_(compute) {}

// `resolve` (also within `fetch`) and `claim_slots` decide what is fetched, so they run for real.
void SyntheticDevice::do_enqueue(const KernelCall& call, StreamView stream, OperationTag tag) {
  std::visit(
      [&]<typename Params>(const Params& params) {
        if constexpr (std::is_same_v<Params, SelectParams>) {
          emulated_.model_call(
              call, stream, [this, params] { return select(params); }, tag);
        } else if constexpr (requires { modelled_work(params); }) {
          if (compute_ == SyntheticCompute::kReal) return emulated_.enqueue(call, stream, tag);
          emulated_.model_call(
              call, stream, [params] { return modelled_work(params); }, tag);
        } else {
          emulated_.enqueue(call, stream, tag);
        }
      },
      call);
}

KernelWork SyntheticDevice::select(const SelectParams& params) {
  const KernelWork work =
      compute_ == SyntheticCompute::kReal ? run_on_host(params) : modelled_work(params);
  const int kv_heads = params.step.layout.kv_heads;
  for (int sequence = 0; sequence < params.step.count; ++sequence) {
    const SequenceDesc& desc = params.step.sequences[sequence];
    const SelectPlan plan = plan_selection(params, desc);
    for (int i = 0; i < params.step.head_count(); ++i) {
      const int head = params.step.first_head() + i;
      const int64_t index = int64_t{sequence} * kv_heads + head;
      const bool decodes = desc.mode == StepMode::kDecode;
      params.selected_sizes[index] = decodes ? plan.budget : 0;
      if (params.low_bit.capacity > 0 && compute_ == SyntheticCompute::kModelled) {
        params.low_bit.sizes[index] = decodes ? plan.low_bit : 0;
      }
      if (params.low_bit_pages.capacity > 0 && compute_ == SyntheticCompute::kModelled) {
        params.low_bit_pages.counts[index] = decodes && !plan.is_dense() ? plan.pages() : 0;
      }
      if (params.runners_up.capacity > 0) params.runners_up.sizes[index] = 0;
      if (!decodes) continue;
      const TraceSetId id{.step = desc.start - tokens_,
                          .sequence = sequence,
                          .layer = params.step.attending_layer(),
                          .kv_head = head};
      int32_t* set = params.sets + index * params.selected_capacity;
      tiling_->true_set(id, plan, set);
      if (plan.runners_up == 0) continue;
      params.runners_up.sizes[index] =
          tiling_->runners_up(id, plan, {set, static_cast<size_t>(plan.budget)},
                              params.runners_up.positions + index * params.runners_up.capacity);
    }
  }
  overlap_.observe(params);
  return work;
}

void SyntheticDevice::do_copy(std::span<const CopyRange> ranges, CopyKind kind, StreamView stream,
                              OperationTag tag) {
  for (const CopyRange& range : ranges) {
    const bool large = allocation_bytes(range.destination) >= kLargeBytes ||
                       allocation_bytes(range.source) >= kLargeBytes;
    if (compute_ == SyntheticCompute::kModelled && large) {
      emulated_.model_copy(range.bytes, kind, stream, tag);
    } else {
      emulated_.copy_all({&range, 1}, kind, stream, tag);
    }
  }
}

}  // namespace fasa
