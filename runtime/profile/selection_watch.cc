#include "runtime/profile/selection_watch.h"

#include <fmt/format.h>

#include <utility>

#include "kernels/cpu/kernels.h"
#include "offload/operation_names.h"
#include "runtime/base/error.h"

namespace fasa {

struct SelectionWatch::Lane {
  SelectionWatch& device;
  Stream stream;  // the inner device's
  StreamView view() const { return stream.view(); }
};

SelectionWatch::Lane& SelectionWatch::lane_of(StreamView stream) {
  if (stream.native == nullptr) {
    throw UsageError("the stream is not one of the watched device's; make it with create_stream");
  }
  return *static_cast<Lane*>(stream.native);
}

struct SelectionWatch::Launchers {
  template <auto kKernel, typename Params>
  static void pass(const Params& params, StreamView stream) {
    const Lane& lane = lane_of(stream);
    (lane.device.inner_.kernels().*kKernel)(params, lane.view());
  }
  static void select(const SelectParams& params, StreamView stream) {
    const Lane& lane = lane_of(stream);
    lane.device.inner_.launch(lane.view(), kernel_name(params), [watch = &lane.device, params] {
      const KernelWork work = cpu::select(params);
      watch->overlap_.observe(params);
      return work;
    });
  }
  static void resolve(const ResolveParams& params, StreamView stream) {
    const SelectionWatch& watch = lane_of(stream).device;
    // A set goes through in waves; each of them has it whole.
    if (watch.set_observer_ && params.begin == 0) watch.set_observer_(params);
    pass<&KernelTable::resolve, ResolveParams>(params, stream);
  }
  template <typename Table>
  static Table table() {
    Table table{};
    table.append = pass<&Table::append, AppendParams>;
    table.write_back = pass<&Table::write_back, WriteBackParams>;
    table.restore = pass<&Table::restore, RestoreParams>;
    table.select = select;
    table.resolve = resolve;
    table.speculate = pass<&Table::speculate, SpeculateParams>;
    table.gather = pass<&Table::gather, GatherParams>;
    table.attend = pass<&Table::attend, AttendParams>;
    table.prefill = pass<&Table::prefill, PrefillParams>;
    return table;
  }
};

SelectionWatch::SelectionWatch(Device& inner) : inner_(inner) {
  if (inner.kind() != DeviceKind::kCpu && inner.kind() != DeviceKind::kEmulated) {
    throw UsageError("selections can be watched on the devices cpu and emulated");
  }
}

void SelectionWatch::observe_sets(SetObserver observer) {
  if (inner_.kind() != DeviceKind::kCpu) {
    throw UsageError(
        fmt::format("sets are looked at on {}; allowed: the device cpu", inner_.name()));
  }
  set_observer_ = std::move(observer);
}

const KernelTable& SelectionWatch::kernels() const {
  static const KernelTable table = Launchers::table<KernelTable>();
  return table;
}

Stream SelectionWatch::create_stream(StreamPriority priority, std::string_view name) {
  return {this, {inner_.kind(), new Lane{*this, inner_.create_stream(priority, name)}}};
}
void SelectionWatch::destroy_stream(StreamView stream) noexcept {
  delete static_cast<Lane*>(stream.native);
}
void SelectionWatch::record(EventView event, StreamView stream) {
  inner_.record(event, lane_of(stream).view());
}
void SelectionWatch::wait(StreamView stream, EventView event) {
  inner_.wait(lane_of(stream).view(), event);
}
void SelectionWatch::synchronize(StreamView stream) { inner_.synchronize(lane_of(stream).view()); }

void SelectionWatch::copy(void* destination, const void* source, size_t bytes, CopyKind kind,
                          StreamView stream) {
  inner_.copy(destination, source, bytes, kind, lane_of(stream).view());
}
void SelectionWatch::fill(void* destination, int byte, size_t bytes, StreamView stream) {
  inner_.fill(destination, byte, bytes, lane_of(stream).view());
}
void SelectionWatch::launch(StreamView stream, const char* name, std::function<KernelWork()> work) {
  inner_.launch(lane_of(stream).view(), name, std::move(work));
}

std::byte* SelectionWatch::do_allocate(MemorySpace space, size_t bytes, std::string_view purpose) {
  Buffer buffer = inner_.allocate(space, bytes, purpose);
  std::byte* data = buffer.data();
  const std::lock_guard lock(mutex_);
  buffers_.insert_or_assign(data, std::move(buffer));
  return data;
}

void SelectionWatch::do_free(MemorySpace, std::byte* data, size_t) noexcept {
  Buffer freed;  // after the lock is gone: freeing waits for what is under way
  const std::lock_guard lock(mutex_);
  const auto found = buffers_.find(data);
  if (found == buffers_.end()) return;
  freed = std::move(found->second);
  buffers_.erase(found);
}

}  // namespace fasa
