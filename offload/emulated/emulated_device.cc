#include "offload/emulated/emulated_device.h"

#include <fmt/format.h>

#include <cstring>
#include <memory>
#include <utility>

#include "kernels/cpu/kernels.h"
#include "offload/operation_names.h"
#include "runtime/base/error.h"

namespace fasa {
namespace {

struct EmulatedEvent {
  std::shared_ptr<Recording> latest;  // null: never recorded
};

EmulatedEvent& event_of(EventView event) { return *static_cast<EmulatedEvent*>(event.native); }

// What a StreamView of this device points to.
struct StreamHandle {
  StreamHandle(EmulatedShared& shared, StreamPriority priority, std::string_view name, int threads,
               double seconds_per_launch)
      : stream(shared, priority, std::string(name), threads), launch_seconds(seconds_per_launch) {}
  EmulatedStream stream;
  const double launch_seconds;
};

StreamHandle& handle_of(StreamView stream) {
  if (stream.kind != DeviceKind::kEmulated || stream.native == nullptr) {
    throw UsageError("the stream is not one of the emulated device's; make it with create_stream");
  }
  return *static_cast<StreamHandle*>(stream.native);
}

template <typename Params, KernelWork (*kKernel)(const Params&)>
void enqueue_kernel(const Params& params, StreamView stream) {
  StreamHandle& handle = handle_of(stream);
  handle.stream.enqueue(kernel_name(params), handle.launch_seconds, EmulatedStream::Where::kArena,
                        [params] { return kKernel(params); });
}

constexpr KernelTable kTable = {
    enqueue_kernel<AppendParams, cpu::append>,   enqueue_kernel<WriteBackParams, cpu::write_back>,
    enqueue_kernel<RestoreParams, cpu::restore>, enqueue_kernel<SelectParams, cpu::select>,
    enqueue_kernel<ResolveParams, cpu::resolve>, enqueue_kernel<SpeculateParams, cpu::speculate>,
    enqueue_kernel<GatherParams, cpu::gather>,   enqueue_kernel<AttendParams, cpu::attend>,
    enqueue_kernel<PrefillParams, cpu::prefill>, enqueue_kernel<ReadRowsParams, cpu::read_rows>};

void throw_failure(const std::shared_ptr<const std::string>& failure) {
  if (failure != nullptr) throw DeviceError(*failure);
}

}  // namespace

EmulatedDevice::EmulatedDevice(const DeviceOptions& options)
    : threads_(options.threads),
      launch_seconds_(options.launch_seconds),
      memory_(options, /*unified=*/false),
      shared_({.link_bandwidth = options.link_bandwidth,
               .link_latency = options.link_latency,
               .memory_bandwidth = options.memory_bandwidth}) {}

Stream EmulatedDevice::create_stream(StreamPriority priority, std::string_view name) {
  return {this,
          {DeviceKind::kEmulated,
           new StreamHandle(shared_, priority, name, threads_.value(), launch_seconds_)}};
}

void EmulatedDevice::destroy_stream(StreamView stream) noexcept {
  delete static_cast<StreamHandle*>(stream.native);
}

Event EmulatedDevice::create_event() { return {this, {new EmulatedEvent}}; }
void EmulatedDevice::destroy_event(EventView event) noexcept { delete &event_of(event); }

void EmulatedDevice::record(EventView event, StreamView stream) {
  event_of(event).latest = handle_of(stream).stream.record();
}

void EmulatedDevice::wait(StreamView stream, EventView event) {
  if (event_of(event).latest != nullptr) handle_of(stream).stream.wait(event_of(event).latest);
}

void EmulatedDevice::synchronize(StreamView stream) {
  const EmulatedStream& target = handle_of(stream).stream;
  std::unique_lock lock(shared_.mutex);
  const uint64_t last = shared_.last_sequence;
  shared_.wait_for_all(lock);
  throw_failure(target.failure());
  shared_.clock.wait_for(target.clock_key(), last);
}

void EmulatedDevice::synchronize(EventView event) {
  const auto recording = event_of(event).latest;
  if (recording == nullptr) return;
  std::unique_lock lock(shared_.mutex);
  shared_.wait_for_all(lock);
  throw_failure(recording->failure);
  shared_.clock.wait_for(*recording->mark);
}

bool EmulatedDevice::done(EventView event) {
  const auto recording = event_of(event).latest;
  if (recording == nullptr) return true;
  const std::lock_guard lock(shared_.mutex);
  throw_failure(recording->failure);
  return recording->executed;
}

double EmulatedDevice::seconds_at(EventView event) {
  if (event_of(event).latest == nullptr) {
    throw UsageError("seconds_at: the event was never recorded");
  }
  synchronize(event);
  return event_of(event).latest->mark->seconds;
}

void EmulatedDevice::check_side(const char* what, const void* data, size_t bytes,
                                bool in_device) const {
  const auto* begin = static_cast<const std::byte*>(data);
  const std::lock_guard lock(blocks_mutex_);
  auto block = device_blocks_.upper_bound(begin);
  const bool touches_next = block != device_blocks_.end() && block->first < begin + bytes;
  size_t within = 0;  // bytes of the block from `begin` on
  if (block != device_blocks_.begin()) {
    --block;
    const auto offset = static_cast<size_t>(begin - block->first);
    within = offset < block->second ? block->second - offset : 0;
  }
  if (in_device ? within >= bytes : within == 0 && !touches_next) return;
  throw UsageError(fmt::format("copy or fill of {} bytes: the {} {} device memory{}", bytes, what,
                               in_device ? "does not lie inside one allocation of" : "lies in",
                               in_device ? "" : ", host memory was announced"));
}

void EmulatedDevice::copy(void* destination, const void* source, size_t bytes, CopyKind kind,
                          StreamView stream) {
  handle_of(stream);  // of this device, or it throws
  if (bytes == 0) return;
  const bool from_device = kind == CopyKind::kDeviceToHost || kind == CopyKind::kDeviceToDevice;
  const bool to_device = kind == CopyKind::kHostToDevice || kind == CopyKind::kDeviceToDevice;
  check_side("destination", destination, bytes, to_device);
  check_side("source", source, bytes, from_device);
  enqueue_copy(bytes, kind, stream,
               [destination, source, bytes] { std::memcpy(destination, source, bytes); });
}

void EmulatedDevice::model_copy(size_t bytes, CopyKind kind, StreamView stream) {
  if (bytes > 0) enqueue_copy(bytes, kind, stream, [] {});
}

void EmulatedDevice::enqueue_copy(size_t bytes, CopyKind kind, StreamView stream,
                                  std::function<void()> move) {
  KernelWork work;
  double seconds = 0;
  switch (kind) {
    case CopyKind::kHostToDevice:
      work.h2d_bytes = bytes;
      break;
    case CopyKind::kDeviceToHost:
      work.d2h_bytes = bytes;
      break;
    case CopyKind::kDeviceToDevice:
      work.device_bytes = bytes;
      break;
    // Host memory is not modelled: at the link's speed, but without the link.
    case CopyKind::kHostToHost:
      seconds = shared_.clock.link_seconds(bytes);
      break;
  }
  handle_of(stream).stream.enqueue(copy_name(kind), seconds, EmulatedStream::Where::kWorker,
                                   [move = std::move(move), work] {
                                     move();
                                     return work;
                                   });
}

void EmulatedDevice::fill(void* destination, int byte, size_t bytes, StreamView stream) {
  StreamHandle& handle = handle_of(stream);
  if (bytes == 0) return;
  check_side("destination", destination, bytes, true);
  handle.stream.enqueue("fill", 0, EmulatedStream::Where::kWorker, [destination, byte, bytes] {
    std::memset(destination, byte, bytes);
    return KernelWork{.device_bytes = bytes, .h2d_bytes = 0, .d2h_bytes = 0};
  });
}

const KernelTable& EmulatedDevice::kernels() const { return kTable; }

void EmulatedDevice::launch(StreamView stream, const char* name, std::function<KernelWork()> work) {
  handle_of(stream).stream.enqueue(name, launch_seconds_, EmulatedStream::Where::kArena,
                                   std::move(work));
}

TransferTotals EmulatedDevice::transfers() {
  std::unique_lock lock(shared_.mutex);
  shared_.wait_for_all(lock);
  TransferTotals totals = shared_.totals;
  totals.h2d_seconds = shared_.clock.link_seconds(totals.h2d_bytes);
  totals.d2h_seconds = shared_.clock.link_seconds(totals.d2h_bytes);
  return totals;
}

// Entries hold no reference to their timeline: what is still queued goes to the new one or nowhere.
void EmulatedDevice::set_timeline(Timeline* timeline) {
  {
    std::unique_lock lock(shared_.mutex);
    shared_.wait_for_all(lock);
    shared_.clock.set_timeline(timeline);
    shared_.tap.set_timeline(timeline);
  }
  sample_memory();
}

void EmulatedDevice::sample_memory() {
  Timeline* timeline = shared_.tap.timeline();
  if (timeline == nullptr) return;
  const std::lock_guard lock(shared_.mutex);
  timeline->sample(kDeviceMemoryCounter, shared_.clock.now(),
                   static_cast<double>(memory_.use(MemorySpace::kDevice).used_bytes));
}

std::byte* EmulatedDevice::do_allocate(MemorySpace space, size_t bytes, std::string_view purpose) {
  std::byte* data = memory_.allocate(space, bytes, purpose);
  if (space == MemorySpace::kDevice) {
    try {
      const std::lock_guard lock(blocks_mutex_);
      device_blocks_.emplace(data, bytes);
    } catch (...) {
      memory_.free(space, data, bytes);
      throw;
    }
    sample_memory();
  }
  return data;
}

// Waits for what is really under way, as cudaFree does: an owner that unwinds early takes no memory
// from under a kernel. Memory that a work's own captures own goes without: its worker can't wait
// for itself.
void EmulatedDevice::do_free(MemorySpace space, std::byte* data, size_t bytes) noexcept {
  if (!EmulatedStream::on_worker()) {
    std::unique_lock lock(shared_.mutex);
    shared_.wait_for_all(lock);
  }
  if (space == MemorySpace::kDevice) {
    const std::lock_guard lock(blocks_mutex_);
    device_blocks_.erase(data);
  }
  memory_.free(space, data, bytes);
  // A worker may hold the streams' mutex here; the next sample corrects the value.
  if (space == MemorySpace::kDevice && !EmulatedStream::on_worker()) sample_memory();
}

}  // namespace fasa
