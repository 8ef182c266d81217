#include "offload/emulated/emulated_device.h"

#include <fmt/format.h>

#include <cstring>
#include <memory>
#include <utility>

#include "kernels/run_on_host.h"
#include "offload/emulated/call_seconds.h"
#include "runtime/base/error.h"

namespace fasa {
namespace {

DeviceTraits traits_of(const DeviceOptions& options) {
  DeviceTraits traits = kEmulatedTraits;
  traits.rates = {.memory_bandwidth = options.memory_bandwidth,
                  .operations = options.operations,
                  .kernels = options.kernels,
                  .link_bandwidth = options.link_bandwidth,
                  .link_latency = options.link_latency};
  return traits;
}

struct EmulatedEvent {
  std::shared_ptr<Recording> latest;  // null: never recorded
};

EmulatedEvent& event_of(EventView event) { return *static_cast<EmulatedEvent*>(event.native); }

// The target of this device's StreamViews.
struct StreamHandle {
  StreamHandle(EmulatedShared& shared, StreamPriority priority, std::string_view name, int threads,
               double seconds_per_launch)
      : stream(shared, priority, std::string(name), threads), launch_seconds(seconds_per_launch) {}
  EmulatedStream stream;
  const double launch_seconds;
};

StreamHandle& handle_of(StreamView stream) {
  if (stream.kind != DeviceKind::kEmulated || stream.native == nullptr) {
    throw UsageError(
        "the stream does not belong to the emulated device; make it with create_stream");
  }
  return *static_cast<StreamHandle*>(stream.native);
}

void throw_failure(const std::shared_ptr<const std::string>& failure) {
  if (failure != nullptr) throw DeviceError(*failure);
}

}  // namespace

EmulatedDevice::EmulatedDevice(const DeviceOptions& options)
    : Device({.kind = DeviceKind::kEmulated,
              .name = "emulated",
              .traits = traits_of(options),
              .host_work = this}),
      threads_(options.threads),
      launch_seconds_(options.kernels.launch),
      memory_(options, /*unified=*/false),
      shared_({.link_bandwidth = options.link_bandwidth,
               .link_latency = options.link_latency,
               .memory_bandwidth = options.memory_bandwidth,
               .operations = options.operations}) {
  show_timeline(shared_.hook.place());
}

Stream EmulatedDevice::create_stream(StreamPriority priority, std::string_view name) {
  return {{DeviceKind::kEmulated,
           new StreamHandle(shared_, priority, name, threads_.value(), launch_seconds_)},
          [](StreamView stream) noexcept { delete static_cast<StreamHandle*>(stream.native); }};
}

Event EmulatedDevice::create_event() {
  return {{new EmulatedEvent}, [](EventView event) noexcept { delete &event_of(event); }};
}

void EmulatedDevice::record(EventView event, StreamView stream) {
  event_of(event).latest = handle_of(stream).stream.record();
}

void EmulatedDevice::do_wait(StreamView stream, EventView event, OperationTag tag) {
  const auto& latest = event_of(event).latest;
  if (latest != nullptr) handle_of(stream).stream.wait(latest, tag);
}

void EmulatedDevice::do_synchronize(StreamView stream) {
  const EmulatedStream& target = handle_of(stream).stream;
  std::unique_lock lock(shared_.mutex);
  const uint64_t last = shared_.last_sequence;
  shared_.wait_for_all(lock);
  throw_failure(target.failure());
  shared_.clock.wait_for(target.clock_key(), last);
}

bool EmulatedDevice::passed(EventView event, Patience patience) {
  const auto recording = event_of(event).latest;
  if (recording == nullptr) return true;
  std::unique_lock lock(shared_.mutex);
  if (patience == Patience::kUntilPassed) shared_.wait_for_all(lock);
  throw_failure(recording->failure);
  if (patience == Patience::kUntilPassed) shared_.clock.wait_for(*recording->mark);
  return recording->executed;
}

double EmulatedDevice::seconds_at(EventView event) {
  if (event_of(event).latest == nullptr) {
    throw UsageError("seconds_at: the event was never recorded; record it in a stream first");
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
  size_t within = 0;  // bytes from `begin` to the end of its block
  if (block != device_blocks_.begin()) {
    --block;
    const auto offset = static_cast<size_t>(begin - block->first);
    within = offset < block->second ? block->second - offset : 0;
  }
  if (in_device ? within >= bytes : within == 0 && !touches_next) return;
  throw UsageError(fmt::format("copy or fill of {} bytes: the {} {} device memory{}", bytes, what,
                               in_device ? "does not lie inside one allocation of" : "lies in",
                               in_device ? "" : ", but must be host memory"));
}

void EmulatedDevice::do_copy(std::span<const CopyRange> ranges, CopyKind kind, StreamView stream,
                             OperationTag tag) {
  handle_of(stream);  // throws for another device's stream
  const bool from_device = kind == CopyKind::kDeviceToHost || kind == CopyKind::kDeviceToDevice;
  const bool to_device = kind == CopyKind::kHostToDevice || kind == CopyKind::kDeviceToDevice;
  for (const CopyRange& range : ranges) {
    if (range.bytes == 0) continue;
    check_side("destination", range.destination, range.bytes, to_device);
    check_side("source", range.source, range.bytes, from_device);
    enqueue_copy(range.bytes, kind, stream, tag,
                 [range] { std::memcpy(range.destination, range.source, range.bytes); });
  }
}

void EmulatedDevice::model_copy(size_t bytes, CopyKind kind, StreamView stream, OperationTag tag) {
  if (bytes > 0) enqueue_copy(bytes, kind, stream, tag, [] {});
}

void EmulatedDevice::enqueue_copy(size_t bytes, CopyKind kind, StreamView stream, OperationTag tag,
                                  std::function<void()> move) {
  // Copies within host memory take the link's time without occupying it.
  const double seconds = kind == CopyKind::kHostToHost ? shared_.clock.link_seconds(bytes) : 0;
  handle_of(stream).stream.enqueue({.name = copy_name(kind), .tag = tag, .seconds = seconds},
                                   [move = std::move(move), work = copy_work(kind, bytes)] {
                                     move();
                                     return work;
                                   });
}

void EmulatedDevice::do_fill(void* destination, int byte, size_t bytes, StreamView stream,
                             OperationTag tag) {
  StreamHandle& handle = handle_of(stream);
  if (bytes == 0) return;
  check_side("destination", destination, bytes, true);
  handle.stream.enqueue({.name = "fill", .tag = tag}, [destination, byte, bytes] {
    std::memset(destination, byte, bytes);
    return KernelWork{.device_bytes = bytes, .h2d_bytes = 0, .d2h_bytes = 0};
  });
}

void EmulatedDevice::do_enqueue(const KernelCall& call, StreamView stream, OperationTag tag) {
  model_call(
      call, stream, [call] { return run_on_host(call); }, tag);
}

void EmulatedDevice::model_call(const KernelCall& call, StreamView stream,
                                std::function<KernelWork()> work, OperationTag tag) {
  handle_of(stream).stream.enqueue(
      {.name = kernel_name(call),
       .tag = tag,
       .call_seconds = [this, call] { return call_seconds(traits().rates.kernels, call); },
       .where = EmulatedStream::Where::kArena},
      std::move(work));
}

void EmulatedDevice::run(StreamView stream, const char* name, std::function<KernelWork()> work,
                         OperationTag tag) {
  handle_of(stream).stream.enqueue({.name = name,
                                    .tag = tag,
                                    .seconds = launch_seconds_,
                                    .where = EmulatedStream::Where::kArena},
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

// Entries hold no reference to a timeline: queued operations are reported to the new one, if any.
void EmulatedDevice::set_timeline(Timeline* timeline) {
  {
    std::unique_lock lock(shared_.mutex);
    shared_.wait_for_all(lock);
    shared_.clock.set_timeline(timeline);
    shared_.hook.set_timeline(timeline);
  }
  sample_memory();
}

void EmulatedDevice::sample_memory() {
  Timeline* timeline = shared_.hook.timeline();
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

// Waits for work in flight, as cudaFree does, so that an owner that unwinds early frees no memory
// that a kernel uses. Memory owned by an operation's captures does not wait: its worker cannot wait
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
