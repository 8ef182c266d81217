#include "runtime/synthetic/synthetic_device.h"

#include <utility>

#include "kernels/cpu/kernels.h"
#include "offload/operation_names.h"
#include "runtime/base/error.h"
#include "runtime/synthetic/modelled_work.h"

namespace fasa {
namespace {

// Tables, descriptors and counters are smaller; rows and slices of a length worth modelling are
// larger. Small ones are copied for real, which changes no time.
constexpr size_t kLargeBytes = size_t{16} << 20;

}  // namespace

struct SyntheticDevice::Lane {
  SyntheticDevice& device;
  Stream stream;  // the inner device's
  StreamView view() const { return stream.view(); }
};

SyntheticDevice::Lane& SyntheticDevice::lane_of(StreamView stream) {
  if (stream.kind != DeviceKind::kEmulated || stream.native == nullptr) {
    throw UsageError("the stream is not one of the synthetic device's; make it with create_stream");
  }
  return *static_cast<Lane*>(stream.native);
}

struct SyntheticDevice::Launchers {
  // The inner device's kernel.
  template <auto kKernel, typename Params>
  static void real(const Params& params, StreamView stream) {
    const Lane& lane = lane_of(stream);
    (lane.device.inner_.kernels().*kKernel)(params, lane.view());
  }
  // Only its work, unless everything computes.
  template <auto kKernel, typename Params>
  static void modelled(const Params& params, StreamView stream) {
    const Lane& lane = lane_of(stream);
    if (lane.device.compute_ == SyntheticCompute::kReal) {
      real<kKernel, Params>(params, stream);
    } else {
      lane.device.inner_.launch(lane.view(), kernel_name(params),
                                [params] { return modelled_work(params); });
    }
  }
  static void select(const SelectParams& params, StreamView stream) {
    const Lane& lane = lane_of(stream);
    lane.device.inner_.launch(lane.view(), kernel_name(params),
                              [device = &lane.device, params] { return device->select(params); });
  }
  // Whatever else decides what is fetched is real, too.
  template <typename Table>
  static Table table() {
    Table table{};
    table.append = modelled<&Table::append, AppendParams>;
    table.write_back = modelled<&Table::write_back, WriteBackParams>;
    table.restore = modelled<&Table::restore, RestoreParams>;
    table.select = select;
    table.resolve = real<&Table::resolve, ResolveParams>;
    table.gather = modelled<&Table::gather, GatherParams>;
    table.attend = modelled<&Table::attend, AttendParams>;
    table.prefill = modelled<&Table::prefill, PrefillParams>;
    table.speculate = real<&Table::speculate, SpeculateParams>;
    return table;
  }
};

SyntheticDevice::SyntheticDevice(EmulatedDevice& inner, const TraceTiling& tiling, int64_t tokens,
                                 SyntheticCompute compute)
    : inner_(inner), tiling_(tiling), tokens_(tokens), compute_(compute) {}

const KernelTable& SyntheticDevice::kernels() const {
  static const KernelTable table = Launchers::table<KernelTable>();
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

Stream SyntheticDevice::create_stream(StreamPriority priority, std::string_view name) {
  return {this, {DeviceKind::kEmulated, new Lane{*this, inner_.create_stream(priority, name)}}};
}
void SyntheticDevice::destroy_stream(StreamView stream) noexcept {
  delete static_cast<Lane*>(stream.native);
}

void SyntheticDevice::record(EventView event, StreamView stream) {
  inner_.record(event, lane_of(stream).view());
}
void SyntheticDevice::wait(StreamView stream, EventView event) {
  inner_.wait(lane_of(stream).view(), event);
}
void SyntheticDevice::synchronize(StreamView stream) { inner_.synchronize(lane_of(stream).view()); }

bool SyntheticDevice::is_large(const void* data) const {
  const auto* at = static_cast<const std::byte*>(data);
  const std::lock_guard lock(mutex_);
  auto buffer = buffers_.upper_bound(at);
  if (buffer == buffers_.begin()) return false;
  --buffer;
  const auto bytes = buffer->second.bytes();
  return bytes >= kLargeBytes && at < buffer->first + bytes;
}

void SyntheticDevice::copy(void* destination, const void* source, size_t bytes, CopyKind kind,
                           StreamView stream) {
  const StreamView view = lane_of(stream).view();
  if (compute_ == SyntheticCompute::kModelled && (is_large(destination) || is_large(source))) {
    inner_.model_copy(bytes, kind, view);
  } else {
    inner_.copy(destination, source, bytes, kind, view);
  }
}

void SyntheticDevice::fill(void* destination, int byte, size_t bytes, StreamView stream) {
  inner_.fill(destination, byte, bytes, lane_of(stream).view());
}

void SyntheticDevice::launch(StreamView stream, const char* name,
                             std::function<KernelWork()> work) {
  inner_.launch(lane_of(stream).view(), name, std::move(work));
}

std::byte* SyntheticDevice::do_allocate(MemorySpace space, size_t bytes, std::string_view purpose) {
  Buffer buffer = inner_.allocate(space, bytes, purpose);
  std::byte* data = buffer.data();
  const std::lock_guard lock(mutex_);
  buffers_.emplace(data, std::move(buffer));
  return data;
}

void SyntheticDevice::do_free(MemorySpace, std::byte* data, size_t) noexcept {
  Buffer freed;  // after the lock is gone: freeing waits for what is under way, which may copy
  const std::lock_guard lock(mutex_);
  const auto found = buffers_.find(data);
  if (found == buffers_.end()) return;
  freed = std::move(found->second);
  buffers_.erase(found);
}

}  // namespace fasa
