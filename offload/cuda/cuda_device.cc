#include "offload/cuda/cuda_device.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "offload/cuda/cuda_kernel_costs.h"
#include "offload/cuda/gpu_traits.h"
#include "offload/host/available_memory.h"
#include "offload/host/topology.h"
#include "runtime/base/error.h"
#include "runtime/base/log.h"

namespace fasa {
namespace {

CudaEvent& event_of(EventView event) { return *static_cast<CudaEvent*>(event.native); }

void destroy_event(EventView event) noexcept {
  const std::unique_ptr<CudaEvent> owned(&event_of(event));
  CudaCalls& calls = owned->calls;
  if (calls.destroy_event(owned->native) != cuda_status::kSuccess) calls.take_last_error();
}

CudaStream& stream_of(StreamView stream) { return cuda_stream_of(stream); }

// The default stream that all threads share: null or cudaStreamLegacy.
bool is_legacy(const CudaStream& stream) {
  return reinterpret_cast<uintptr_t>(stream.native()) <= 1;
}

DeviceTraits traits_of(const CudaPlatform& platform, const CudaGpu& gpu) {
  DeviceTraits traits = gpu_traits(10 * gpu.major + gpu.minor);
  traits.project_scratch = platform.project_scratch;
  return traits;
}

// Pinned memory cannot be swapped, and the kernel kills processes rather than refuse a pin. The
// default limit is therefore the memory available when the device is opened, minus a reserve.
std::optional<uint64_t> pinnable_bytes() {
  constexpr uint64_t kReserved = uint64_t{2} << 30;
  const auto available = available_host_bytes();
  if (!available) return std::nullopt;
  return *available > kReserved ? *available - kReserved : *available / 2;
}

}  // namespace

class CudaDevice::Control {
 public:
  Control(CudaCalls& calls, int index, bool only_one) : calls_(calls) {
    const CudaGpuScope scope(calls, index, only_one);
    check_cuda(calls, calls.create_stream(&stream_, StreamPriority::kNormal),
               {"cudaStreamCreateWithPriority"});
  }
  Control(const Control&) = delete;  // owns its stream
  Control& operator=(const Control&) = delete;
  ~Control() {
    if (calls_.destroy_stream(stream_) != cuda_status::kSuccess) calls_.take_last_error();
  }
  void* stream() const { return stream_; }

 private:
  CudaCalls& calls_;
  void* stream_ = nullptr;
};

CudaDevice::CudaDevice(const CudaPlatform& platform, int index, const CudaGpu& gpu, bool only_one,
                       const DeviceOptions& options)
    : Device({.kind = DeviceKind::kCuda,
              .name = fmt::format("cuda:{}", index),
              .traits = traits_of(platform, gpu),
              .graphs = this}),
      calls_(*platform.calls),
      gpu_(gpu),
      threads_(options.threads),
      control_(std::make_unique<Control>(calls_, index, only_one)),
      pinned_(calls_, options.numa, Topology::machine().node_of_pci(gpu.pci_bus_id),
              threads_.value()),
      host_limit_("host_memory", options.host_memory ? options.host_memory : pinnable_bytes()),
      pinned_limit_("pinned_memory", options.pinned_memory) {
  if (options.host_alias_bytes) {
    throw UsageError(
        "host_alias_bytes: aliased host memory cannot be pinned for a GPU; allowed on: cpu, "
        "emulated");
  }
  const CudaGpuScope scope(calls_, index, only_one);
  shared_ = std::make_unique<CudaShared>(platform, index, only_one, control_->stream());
  show_timeline(shared_->hook.place());
  memory_ = std::make_unique<CudaMemory>(*shared_, gpu, control_->stream(), options.device_memory);
  link_ = measure_link(*shared_, pinned_, memory_->pool(), control_->stream());
  DeviceRates rates;  // the latency keeps the default of plans
  if (platform.times_kernels && options.kernel_times) rates.kernels = kernel_costs(options);
  if (gpu.cycles > 0) rates.kernels.set_rates(gpu.cycles, rates.operations);
  if (gpu.memory_bandwidth > 0) rates.memory_bandwidth = gpu.memory_bandwidth;
  rates.link_bandwidth = link_.h2d;
  show_rates(rates);
}

CudaDevice::~CudaDevice() = default;

// A GPU on which kernels fail is not for `auto`; by name it opens, unless its context is lost.
KernelCosts CudaDevice::kernel_costs(const DeviceOptions& options) {
  try {
    return measure_kernels(*shared_, memory_->pool(), control_->stream());
  } catch (const DeviceError& error) {
    if (options.name == "auto" || shared_->lost()) {
      throw DeviceError(fmt::format(
          "{}: its first kernels failed: {}; kernel_times = off skips them", name(), error.what()));
    }
    log_warning(fmt::format("{}: kernels could not be timed, plans take defaults: {}", name(),
                            error.what()));
    return {};
  }
}

MemoryUse CudaDevice::memory(MemorySpace space) const {
  if (space == MemorySpace::kDevice) return memory_->use();
  MemoryUse use = host_limit_.use();
  use.limit_bytes = std::min(use.limit_bytes, pinned_limit_.use().limit_bytes);
  return use;
}

Stream CudaDevice::add_stream(void* native, CudaStream::Ownership ownership,
                              std::string_view name) {
  return {{DeviceKind::kCuda, new CudaStream(*shared_, native, ownership, name)},
          [](StreamView stream) noexcept { delete static_cast<CudaStream*>(stream.native); }};
}

Stream CudaDevice::create_stream(StreamPriority priority, std::string_view name) {
  shared_->require_context();
  const CudaGpuScope scope = shared_->enter();
  void* native = nullptr;
  shared_->check(calls_.create_stream(&native, priority), {"cudaStreamCreateWithPriority"});
  return add_stream(native, CudaStream::Ownership::kOurs, name);
}

Event CudaDevice::create_event() {
  shared_->require_context();
  const CudaGpuScope scope = shared_->enter();
  auto event = std::make_unique<CudaEvent>(calls_);
  shared_->check(calls_.create_event(&event->native), {"cudaEventCreate"});
  return {{event.release()}, destroy_event};
}

void CudaDevice::record(EventView event, StreamView stream) {
  stream_of(stream).record(event_of(event));
}

void CudaDevice::do_wait(StreamView stream, EventView event, OperationTag tag) {
  stream_of(stream).wait(event_of(event), tag);
}

void CudaDevice::do_synchronize(StreamView stream) { stream_of(stream).synchronize(); }

bool CudaDevice::passed(EventView view, Patience patience) {
  CudaCapture::forbid("waiting for an event");
  const CudaEvent& event = event_of(view);
  shared_->require_context();
  if (event.journal == nullptr) return true;
  if (patience == Patience::kUntilPassed) {
    shared_->check(calls_.synchronize_event(event.point()), {"cudaEventSynchronize"});
  } else {
    const CudaStatus status = calls_.query_event(event.point());
    if (status == cuda_status::kNotReady) return false;
    shared_->check(status, {"cudaEventQuery"});
  }
  event.journal_at().passed(event.number_at());
  if (timeline() != nullptr && patience == Patience::kUntilPassed) [[unlikely]]
    flush_streams(timeline());
  throw_host_failure(*event.failure, event.number);
  return true;
}

void CudaDevice::do_enqueue(const KernelCall& call, StreamView stream, OperationTag tag) {
  stream_of(stream).run_kernel(call, tag);
}

// Copies in a graph count when it is launched.
void CudaDevice::count_copy(CopyKind kind, size_t bytes) {
  CudaCapture* const capture = CudaCapture::current();
  if (kind == CopyKind::kHostToDevice) {
    if (capture == nullptr) return h2d_.add(bytes, 1);
    capture->traffic.h2d_bytes += bytes;
    ++capture->traffic.h2d_operations;
  } else if (kind == CopyKind::kDeviceToHost) {
    if (capture == nullptr) return d2h_.add(bytes, 1);
    capture->traffic.d2h_bytes += bytes;
    ++capture->traffic.d2h_operations;
  }
}

void CudaDevice::do_copy(std::span<const CopyRange> ranges, CopyKind kind, StreamView view,
                         OperationTag tag) {
  CudaStream& stream = stream_of(view);
  if (batchable(ranges, kind, stream) && copy_batch(ranges, kind, stream, tag)) return;
  for (const CopyRange& range : ranges) {
    if (range.bytes > 0) copy_one(range, kind, stream, tag);
  }
}

void CudaDevice::copy_one(const CopyRange& range, CopyKind kind, CudaStream& stream,
                          OperationTag tag) {
  count_copy(kind, range.bytes);
  auto* to = static_cast<std::byte*>(range.destination);
  const auto* from = static_cast<const std::byte*>(range.source);
  for (size_t left = range.bytes; left > 0;) {
    size_t piece = left;
    if (kind == CopyKind::kHostToDevice) piece = pinned_.copyable(from, left);
    if (kind == CopyKind::kDeviceToHost) piece = pinned_.copyable(to, left);
    copy_piece({to, from, piece}, kind, stream, tag);
    to += piece;
    from += piece;
    left -= piece;
  }
}

void CudaDevice::copy_piece(const CopyRange& piece, CopyKind kind, CudaStream& stream,
                            OperationTag tag) {
  // The runtime's own copy within the host would not wait for earlier work of the stream.
  if (kind == CopyKind::kHostToHost) {
    stream.run_on_host(copy_name(kind), tag, [piece] {
      std::memcpy(piece.destination, piece.source, piece.bytes);
      return KernelWork{};
    });
    return;
  }
  stream.run({copy_name(kind), piece.bytes}, tag, copy_work(kind, piece.bytes), [&] {
    return calls_.copy(piece.destination, piece.source, piece.bytes, kind, stream.native());
  });
}

// True if all ranges are in memory pinned here, each in one registered piece. A graph gets a node
// per copy instead. The runtime refuses batches on the legacy stream.
bool CudaDevice::batchable(std::span<const CopyRange> ranges, CopyKind kind,
                           const CudaStream& stream) const {
  if (ranges.size() < 2 || kind == CopyKind::kHostToHost || is_legacy(stream) ||
      CudaCapture::current() != nullptr || !batches_.load(std::memory_order_relaxed)) {
    return false;
  }
  return std::all_of(ranges.begin(), ranges.end(), [&](const CopyRange& range) {
    if (range.bytes < min_batched_) return false;
    if (kind == CopyKind::kDeviceToDevice) return true;
    const void* const on_host = kind == CopyKind::kHostToDevice ? range.source : range.destination;
    return pinned_.in_one_piece(on_host, range.bytes);
  });
}

bool CudaDevice::copy_batch(std::span<const CopyRange> ranges, CopyKind kind, CudaStream& stream,
                            OperationTag tag) {
  size_t bytes = 0;
  for (const CopyRange& range : ranges) bytes += range.bytes;
  stream.run({copy_name(kind), bytes}, tag, copy_work(kind, bytes), [&] {
    const CudaStatus status = calls_.copy_all(ranges, stream.native());
    if (status != cuda_status::kNotSupported) return status;
    calls_.take_last_error();
    batches_ = false;
    return CudaStatus{cuda_status::kSuccess};
  });
  if (!batches_) return false;
  for (const CopyRange& range : ranges) count_copy(kind, range.bytes);
  return true;
}

void CudaDevice::do_fill(void* destination, int byte, size_t bytes, StreamView view,
                         OperationTag tag) {
  CudaStream& stream = stream_of(view);
  if (bytes == 0) return;
  stream.run({"fill", bytes}, tag, {.device_bytes = bytes, .h2d_bytes = 0, .d2h_bytes = 0},
             [&] { return calls_.fill(destination, byte, bytes, stream.native()); });
}

void CudaDevice::run_on_host(StreamView stream, const char* name,
                             std::function<KernelWork()> work) {
  stream_of(stream).run_on_host(name, {}, std::move(work));
}

double CudaDevice::seconds_at(EventView view) {
  if (event_of(view).journal == nullptr) {
    throw UsageError("seconds_at: the event was never recorded; record it in a stream first");
  }
  synchronize(view);
  const CudaGpuScope scope = shared_->enter();
  return shared_->clock.seconds_at(event_of(view).point());
}

Graph CudaDevice::record_graph(StreamView origin, std::span<const StreamView> others,
                               const char* name, const std::function<void()>& enqueue) {
  CudaCapture::forbid("recording a graph");
  if (timeline() != nullptr) {
    throw UsageError(
        "a graph cannot be recorded while a timeline is set; remove the timeline first");
  }
  shared_->require_context();
  const CudaGpuScope scope = shared_->enter();
  std::vector<CudaStream*> streams;
  for (const StreamView other : others) streams.push_back(&stream_of(other));
  CudaCapture capture(*shared_, stream_of(origin), std::move(streams));
  enqueue();
  return {{new CudaGraph(capture, *memory_, name)},
          [](GraphView graph) noexcept { delete static_cast<CudaGraph*>(graph.native); }};
}

bool CudaDevice::launch_graph(GraphView view) {
  CudaGraph& graph = *static_cast<CudaGraph*>(view.native);
  const CudaGpuScope scope = shared_->enter();
  if (!graph.launch()) return false;
  const CudaTraffic& traffic = graph.traffic();
  h2d_.add(traffic.h2d_bytes, traffic.h2d_operations);
  d2h_.add(traffic.d2h_bytes, traffic.d2h_operations);
  return true;
}

uint64_t CudaDevice::graph_bytes(GraphView graph) const {
  return static_cast<const CudaGraph*>(graph.native)->bytes();
}

TransferTotals CudaDevice::transfers() {
  TransferTotals totals;
  totals.h2d_bytes = h2d_.bytes.load(std::memory_order_relaxed);
  totals.d2h_bytes = d2h_.bytes.load(std::memory_order_relaxed);
  totals.h2d_operations = h2d_.operations.load(std::memory_order_relaxed);
  totals.d2h_operations = d2h_.operations.load(std::memory_order_relaxed);
  totals.h2d_seconds = static_cast<double>(totals.h2d_bytes) / link_.h2d;
  totals.d2h_seconds = static_cast<double>(totals.d2h_bytes) / link_.d2h;
  return totals;
}

void CudaDevice::flush_streams(Timeline* timeline) {
  const std::lock_guard lock(shared_->streams_mutex);
  for (CudaStream* stream : shared_->streams) stream->flush(timeline);
}

void CudaDevice::set_timeline(Timeline* timeline) {
  CudaCapture::forbid("setting a timeline");
  {
    const std::lock_guard lock(shared_->streams_mutex);
    for (CudaStream* stream : shared_->streams) stream->synchronize_all_but_captured();
  }
  shared_->hook.set_timeline(timeline);
  memory_->sample();
}

std::byte* CudaDevice::allocate_host(size_t bytes, std::string_view purpose) {
  host_limit_.take(bytes, purpose);
  try {
    pinned_limit_.take(bytes, purpose);
  } catch (...) {
    host_limit_.give(bytes);
    throw;
  }
  try {
    return pinned_.allocate(bytes, purpose);
  } catch (...) {
    pinned_limit_.give(bytes);
    host_limit_.give(bytes);
    throw;
  }
}

std::byte* CudaDevice::do_allocate(MemorySpace space, size_t bytes, std::string_view purpose) {
  CudaCapture::forbid("allocating memory");
  shared_->require_context();
  const CudaGpuScope scope = shared_->enter();
  if (space == MemorySpace::kHost) return allocate_host(bytes, purpose);
  std::byte* const data = memory_->allocate(bytes, purpose);
  memory_->sample();
  return data;
}

// Waits for work in flight, as cudaFree does and a pool does not, so that an owner that unwinds
// early frees no memory that a kernel uses. Decode steps free nothing. In a capture of this thread,
// memory is freed when the capture ends.
void CudaDevice::do_free(MemorySpace space, std::byte* data, size_t bytes) noexcept {
  if (CudaCapture* const capture = CudaCapture::current(); capture != nullptr) [[unlikely]] {
    capture->defer([this, space, data, bytes] { do_free(space, data, bytes); });
    return;
  }
  {
    const std::lock_guard lock(shared_->streams_mutex);
    for (const CudaStream* stream : shared_->streams) {
      if (shared_->wait_for(stream->native()) != cuda_status::kSuccess) calls_.take_last_error();
    }
  }
  if (space == MemorySpace::kHost) {
    pinned_.free(data, bytes);
    pinned_limit_.give(bytes);
    host_limit_.give(bytes);
    return;
  }
  memory_->free(data, bytes);
  memory_->sample();
}

}  // namespace fasa
