#include "offload/cpu/cpu_device.h"

#include <fmt/format.h>

#include <cstring>
#include <exception>
#include <optional>

#include "kernels/run_on_host.h"
#include "runtime/base/error.h"

namespace fasa {
namespace {

struct CpuEvent {
  std::optional<double> seconds;
};

CpuEvent& event_of(EventView event) { return *static_cast<CpuEvent*>(event.native); }

CpuStream& stream_of(StreamView stream) { return *static_cast<CpuStream*>(stream.native); }

}  // namespace

void CpuExecutor::rethrow_named(const char* name) {
  std::string reason = "unknown exception";
  try {
    throw;
  } catch (const std::exception& error) {
    reason = error.what();
  } catch (...) {
  }
  throw DeviceError(fmt::format("operation '{}' failed on cpu: {}", name, reason));
}

void CpuStream::add_to(Timeline& timeline, const char* name, OperationTag tag, double start,
                       const KernelWork& work) const {
  const TimeSpan span{start, shared_.seconds_now()};
  const auto link = [&](uint64_t bytes) { return bytes > 0 ? span : TimeSpan{start, start}; };
  timeline.add({.kind = TimelineEntry::Kind::kWork,
                .stream = timeline_key_,
                .name = name,
                .tag = tag,
                .work = work,
                .enqueued = start,
                .span = span,
                .link = {link(work.h2d_bytes), link(work.d2h_bytes)},
                .awaited = {}});
}

CpuDevice::CpuDevice(const DeviceOptions& options)
    : Device({.kind = DeviceKind::kCpu, .name = "cpu", .traits = kHostTraits, .host_work = this}),
      threads_(options.threads),
      shared_(threads_.value()),
      memory_(options, /*unified=*/true) {
  show_timeline(shared_.hook.place());
}

Stream CpuDevice::create_stream(StreamPriority, std::string_view name) {
  return {{DeviceKind::kCpu, new CpuStream(shared_, name)},
          [](StreamView stream) noexcept { delete &stream_of(stream); }};
}

Event CpuDevice::create_event() {
  return {{new CpuEvent}, [](EventView event) noexcept { delete &event_of(event); }};
}

void CpuDevice::record(EventView event, StreamView) {
  event_of(event).seconds = shared_.seconds_now();
}

double CpuDevice::seconds_at(EventView event) {
  const auto seconds = event_of(event).seconds;
  if (!seconds)
    throw UsageError("seconds_at: the event was never recorded; record it in a stream first");
  return *seconds;
}

void CpuDevice::do_copy(std::span<const CopyRange> ranges, CopyKind kind, StreamView stream,
                        OperationTag tag) {
  for (const auto& [destination, source, bytes] : ranges) {
    if (bytes == 0) continue;
    const double begin = shared_.seconds_now();
    std::memcpy(destination, source, bytes);
    count(kind, bytes, shared_.seconds_now() - begin);
    if (Timeline* timeline = shared_.hook.timeline(); timeline && stream.native != nullptr)
      stream_of(stream).add_to(*timeline, copy_name(kind), tag, begin, copy_work(kind, bytes));
  }
}

void CpuDevice::count(CopyKind kind, size_t bytes, double seconds) {
  const std::lock_guard lock(mutex_);
  if (kind == CopyKind::kHostToDevice) {
    totals_.h2d_bytes += bytes;
    totals_.h2d_seconds += seconds;
    ++totals_.h2d_operations;
  } else if (kind == CopyKind::kDeviceToHost) {
    totals_.d2h_bytes += bytes;
    totals_.d2h_seconds += seconds;
    ++totals_.d2h_operations;
  }
}

void CpuDevice::do_fill(void* destination, int byte, size_t bytes, StreamView stream,
                        OperationTag tag) {
  if (bytes == 0) return;
  Timeline* timeline = stream.native == nullptr ? nullptr : shared_.hook.timeline();
  const double begin = timeline == nullptr ? 0 : shared_.seconds_now();
  std::memset(destination, byte, bytes);
  if (timeline == nullptr) return;
  stream_of(stream).add_to(*timeline, "fill", tag, begin,
                           {.device_bytes = bytes, .h2d_bytes = 0, .d2h_bytes = 0});
}

template <typename Work>
void CpuDevice::run_now(StreamView stream, const char* name, OperationTag tag, const Work& work) {
  if (stream.native == nullptr) {
    shared_.executor.run(name, work);
  } else {
    stream_of(stream).run(name, tag, work);
  }
}

void CpuDevice::do_enqueue(const KernelCall& call, StreamView stream, OperationTag tag) {
  run_now(stream, kernel_name(call), tag, [&call] { return run_on_host(call); });
}

void CpuDevice::run(StreamView stream, const char* name, std::function<KernelWork()> work,
                    OperationTag tag) {
  run_now(stream, name, tag, work);
}

void CpuDevice::set_timeline(Timeline* timeline) {
  shared_.hook.set_timeline(timeline);
  sample_memory();
}

void CpuDevice::sample_memory() {
  if (Timeline* timeline = shared_.hook.timeline()) {
    timeline->sample(kDeviceMemoryCounter, shared_.seconds_now(),
                     static_cast<double>(memory_.use(MemorySpace::kDevice).used_bytes));
  }
}

TransferTotals CpuDevice::transfers() {
  const std::lock_guard lock(mutex_);
  return totals_;
}

std::byte* CpuDevice::do_allocate(MemorySpace space, size_t bytes, std::string_view purpose) {
  std::byte* data = memory_.allocate(space, bytes, purpose);
  if (space == MemorySpace::kDevice) sample_memory();
  return data;
}

void CpuDevice::do_free(MemorySpace space, std::byte* data, size_t bytes) noexcept {
  memory_.free(space, data, bytes);
  if (space == MemorySpace::kDevice) sample_memory();
}

}  // namespace fasa
