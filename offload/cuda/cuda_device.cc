#include "offload/cuda/cuda_device.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "offload/host/available_memory.h"
#include "offload/host/topology.h"
#include "offload/operation_names.h"
#include "runtime/base/error.h"

namespace fasa {
namespace {

CudaEvent& event_of(EventView event) { return *static_cast<CudaEvent*>(event.native); }

CudaStream& stream_of(StreamView stream) {
  if (stream.kind != DeviceKind::kCuda || stream.native == nullptr) {
    throw UsageError(
        "the stream is not one of the CUDA device's; make it with create_stream, or adopt_stream "
        "for an engine's own");
  }
  return *static_cast<CudaStream*>(stream.native);
}

template <auto kLauncher, typename Params>
void enqueue_kernel(const Params& params, StreamView stream) {
  stream_of(stream).run_kernel(kernel_name(params),
                               [&](const CudaShared& shared, StreamView native) {
                                 (shared.kernels.*kLauncher)(params, native);
                               });
}

template <auto kLauncher, typename Params>
void enqueue_model_kernel(const Params& params, StreamView stream) {
  stream_of(stream).run_kernel(kernel_name(params),
                               [&](const CudaShared& shared, StreamView native) {
                                 (shared.model_kernels.*kLauncher)(params, native);
                               });
}

// Launchers that say on whose behalf they enqueue; the device's own ones do the work.
KernelTable named_launchers(const KernelTable& own) {
  return {.append = enqueue_kernel<&KernelTable::append, AppendParams>,
          .write_back = enqueue_kernel<&KernelTable::write_back, WriteBackParams>,
          .restore = enqueue_kernel<&KernelTable::restore, RestoreParams>,
          .select = enqueue_kernel<&KernelTable::select, SelectParams>,
          .resolve = enqueue_kernel<&KernelTable::resolve, ResolveParams>,
          .speculate = enqueue_kernel<&KernelTable::speculate, SpeculateParams>,
          .gather = enqueue_kernel<&KernelTable::gather, GatherParams>,
          .attend = enqueue_kernel<&KernelTable::attend, AttendParams>,
          .prefill = enqueue_kernel<&KernelTable::prefill, PrefillParams>,
          .read_rows = enqueue_kernel<&KernelTable::read_rows, ReadRowsParams>,
          .select_scratch = own.select_scratch};
}

ModelKernelTable named_model_launchers(const ModelKernelTable& own) {
  using Table = ModelKernelTable;
  return {.project = enqueue_model_kernel<&Table::project, ProjectParams>,
          .add_norm = enqueue_model_kernel<&Table::add_norm, AddNormParams>,
          .angles = enqueue_model_kernel<&Table::angles, AnglesParams>,
          .heads = enqueue_model_kernel<&Table::heads, HeadsParams>,
          .activate = enqueue_model_kernel<&Table::activate, ActivateParams>,
          .add_bias = enqueue_model_kernel<&Table::add_bias, AddBiasParams>,
          .project_scratch = own.project_scratch};
}

// Pinned memory can't be swapped, and the kernel ends processes before it refuses a pin: without a
// limit of the user's, what the machine has left when the device is opened, but for a little.
std::optional<uint64_t> pinnable_bytes() {
  constexpr uint64_t kSpared = uint64_t{2} << 30;
  const auto available = available_host_bytes();
  if (!available) return std::nullopt;
  return *available > kSpared ? *available - kSpared : *available / 2;
}

KernelWork work_of(CopyKind kind, size_t bytes) {
  return {.device_bytes = kind == CopyKind::kDeviceToDevice ? bytes : 0,
          .h2d_bytes = kind == CopyKind::kHostToDevice ? bytes : 0,
          .d2h_bytes = kind == CopyKind::kDeviceToHost ? bytes : 0};
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
    : calls_(*platform.calls),
      gpu_(gpu),
      index_(index),
      threads_(options.threads),
      table_(named_launchers(*platform.kernels)),
      model_table_(named_model_launchers(*platform.model_kernels)),
      control_(std::make_unique<Control>(calls_, index, only_one)),
      pinned_(calls_, options.numa, Topology::machine().node_of_pci(gpu.pci_bus_id),
              threads_.value()),
      host_limit_("host_memory", options.host_memory ? options.host_memory : pinnable_bytes()),
      pinned_limit_("pinned_memory", options.pinned_memory) {
  if (options.host_alias_bytes) {
    throw UsageError(
        "host_alias_bytes: memory that repeats itself cannot be pinned for a GPU; "
        "allowed on: cpu, emulated");
  }
  const CudaGpuScope scope(calls_, index, only_one);
  shared_ = std::make_unique<CudaShared>(platform, index, only_one, control_->stream());
  memory_ = std::make_unique<CudaMemory>(*shared_, gpu, control_->stream(), options.device_memory);
  link_ = measure_link(*shared_, pinned_, memory_->pool(), control_->stream());
}

CudaDevice::~CudaDevice() = default;

std::string CudaDevice::name() const { return fmt::format("cuda:{}", index_); }

MemoryUse CudaDevice::memory(MemorySpace space) const {
  if (space == MemorySpace::kDevice) return memory_->use();
  MemoryUse use = host_limit_.use();
  use.limit_bytes = std::min(use.limit_bytes, pinned_limit_.use().limit_bytes);
  return use;
}

Stream CudaDevice::add_stream(void* native, CudaStream::Ownership ownership,
                              std::string_view name) {
  auto stream = std::make_unique<CudaStream>(*shared_, native, ownership, name);
  const std::lock_guard lock(streams_mutex_);
  streams_.push_back(stream.get());
  return {this, {DeviceKind::kCuda, stream.release()}};
}

Stream CudaDevice::create_stream(StreamPriority priority, std::string_view name) {
  shared_->require_context();
  const CudaGpuScope scope = shared_->enter();
  void* native = nullptr;
  shared_->check(calls_.create_stream(&native, priority), {"cudaStreamCreateWithPriority"});
  return add_stream(native, CudaStream::Ownership::kOurs, name);
}

Stream CudaDevice::adopt_stream(void* native, std::string_view name) {
  return add_stream(native, CudaStream::Ownership::kTheirs, name);
}

void CudaDevice::destroy_stream(StreamView view) noexcept {
  auto* const stream = static_cast<CudaStream*>(view.native);
  {
    const std::lock_guard lock(streams_mutex_);
    std::erase(streams_, stream);
  }
  delete stream;
}

Event CudaDevice::create_event() {
  shared_->require_context();
  const CudaGpuScope scope = shared_->enter();
  auto event = std::make_unique<CudaEvent>();
  shared_->check(calls_.create_event(&event->native), {"cudaEventCreate"});
  return {this, {event.release()}};
}

void CudaDevice::destroy_event(EventView event) noexcept {
  const std::unique_ptr<CudaEvent> owned(&event_of(event));
  if (calls_.destroy_event(owned->native) != cuda_status::kSuccess) calls_.take_last_error();
}

void CudaDevice::record(EventView event, StreamView stream) {
  stream_of(stream).record(event_of(event));
}

void CudaDevice::wait(StreamView stream, EventView event) {
  stream_of(stream).wait(event_of(event));
}

void CudaDevice::synchronize(StreamView stream) { stream_of(stream).synchronize(); }

void CudaDevice::synchronize(EventView view) {
  CudaCapture::forbid("waiting for an event");
  const CudaEvent& event = event_of(view);
  shared_->require_context();
  if (event.journal == nullptr) return;
  shared_->check(calls_.synchronize_event(event.point()), {"cudaEventSynchronize"});
  event.journal_at().passed(event.number_at());
  if (timeline() != nullptr) [[unlikely]]
    flush_streams(timeline());
  throw_host_failure(*event.failure, event.number);
}

bool CudaDevice::done(EventView view) {
  CudaCapture::forbid("asking for an event");
  const CudaEvent& event = event_of(view);
  shared_->require_context();
  if (event.journal == nullptr) return true;
  const CudaStatus status = calls_.query_event(event.point());
  if (status == cuda_status::kNotReady) return false;
  shared_->check(status, {"cudaEventQuery"});
  event.journal_at().passed(event.number_at());
  throw_host_failure(*event.failure, event.number);
  return true;
}

// A graph's copies count when it is launched.
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

void CudaDevice::copy(void* destination, const void* source, size_t bytes, CopyKind kind,
                      StreamView view) {
  CudaStream& stream = stream_of(view);
  if (bytes == 0) return;
  auto* to = static_cast<std::byte*>(destination);
  const auto* from = static_cast<const std::byte*>(source);
  count_copy(kind, bytes);
  while (bytes > 0) {
    size_t piece = bytes;
    if (kind == CopyKind::kHostToDevice) piece = pinned_.copyable(from, bytes);
    if (kind == CopyKind::kDeviceToHost) piece = pinned_.copyable(to, bytes);
    copy_piece(to, from, piece, kind, stream);
    to += piece;
    from += piece;
    bytes -= piece;
  }
}

void CudaDevice::copy_piece(std::byte* destination, const std::byte* source, size_t bytes,
                            CopyKind kind, CudaStream& stream) {
  // The runtime's own copy inside the host waits for nothing that the stream did before.
  if (kind == CopyKind::kHostToHost) {
    stream.run_on_host(copy_name(kind), [destination, source, bytes] {
      std::memcpy(destination, source, bytes);
      return KernelWork{};
    });
    return;
  }
  stream.run({copy_name(kind), bytes}, work_of(kind, bytes),
             [&] { return calls_.copy(destination, source, bytes, kind, stream.native()); });
}

// Of pinned memory, in one registered piece each; a graph has a node for each copy.
bool CudaDevice::batchable(std::span<const CopyRange> ranges, CopyKind kind) const {
  if (ranges.size() < 2 || kind == CopyKind::kHostToHost || CudaCapture::current() != nullptr ||
      !batches_.load(std::memory_order_relaxed)) {
    return false;
  }
  return std::all_of(ranges.begin(), ranges.end(), [&](const CopyRange& range) {
    if (range.bytes < least_batched_) return false;
    if (kind == CopyKind::kDeviceToDevice) return true;
    const void* const on_host = kind == CopyKind::kHostToDevice ? range.source : range.destination;
    return pinned_.copyable(on_host, range.bytes) == range.bytes;
  });
}

void CudaDevice::copy_all(std::span<const CopyRange> ranges, CopyKind kind, StreamView view) {
  if (!batchable(ranges, kind)) return Device::copy_all(ranges, kind, view);
  CudaStream& stream = stream_of(view);
  size_t bytes = 0;
  for (const CopyRange& range : ranges) bytes += range.bytes;
  stream.run({copy_name(kind), bytes}, work_of(kind, bytes), [&] {
    const CudaStatus status = calls_.copy_all(ranges, stream.native());
    if (status != cuda_status::kNotSupported) return status;
    calls_.take_last_error();
    batches_ = false;
    return CudaStatus{cuda_status::kSuccess};
  });
  if (!batches_) return Device::copy_all(ranges, kind, view);
  for (const CopyRange& range : ranges) count_copy(kind, range.bytes);
}

void CudaDevice::fill(void* destination, int byte, size_t bytes, StreamView view) {
  CudaStream& stream = stream_of(view);
  if (bytes == 0) return;
  stream.run({"fill", bytes}, {.device_bytes = bytes, .h2d_bytes = 0, .d2h_bytes = 0},
             [&] { return calls_.fill(destination, byte, bytes, stream.native()); });
}

void CudaDevice::launch(StreamView, const char* name, std::function<KernelWork()>) {
  throw UsageError(
      fmt::format("operation '{}' is host code, which {} cannot run: its memory is not "
                  "the host's; use --device cpu or emulated",
                  name, this->name()));
}

void CudaDevice::run_on_host(StreamView stream, const char* name,
                             std::function<KernelWork()> work) {
  stream_of(stream).run_on_host(name, std::move(work));
}

double CudaDevice::seconds_at(EventView view) {
  if (event_of(view).journal == nullptr) {
    throw UsageError("seconds_at: the event was never recorded");
  }
  synchronize(view);
  const CudaGpuScope scope = shared_->enter();
  return shared_->clock.seconds_at(event_of(view).point());
}

Graph CudaDevice::record_graph(StreamView origin, std::span<const StreamView> others,
                               const char* name, const std::function<void()>& enqueue) {
  CudaCapture::forbid("recording a graph");
  if (timeline() != nullptr) {
    throw UsageError("a graph of steps while a timeline is set: its parts would have no times");
  }
  shared_->require_context();
  const CudaGpuScope scope = shared_->enter();
  std::vector<CudaStream*> streams;
  for (const StreamView other : others) streams.push_back(&stream_of(other));
  CudaCapture capture(*shared_, stream_of(origin), std::move(streams));
  enqueue();
  return {this, {std::make_unique<CudaGraph>(capture, *memory_, name).release()}};
}

bool CudaDevice::launch(GraphView view) {
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

void CudaDevice::destroy_graph(GraphView graph) noexcept {
  delete static_cast<CudaGraph*>(graph.native);
  sample_memory();
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
  const std::lock_guard lock(streams_mutex_);
  for (CudaStream* stream : streams_) stream->flush(timeline);
}

void CudaDevice::set_timeline(Timeline* timeline) {
  {
    const std::lock_guard lock(streams_mutex_);
    for (CudaStream* stream : streams_) stream->synchronize();
  }
  shared_->tap.set_timeline(timeline);
  sample_memory();
}

void CudaDevice::sample_memory() {
  if (Timeline* timeline = this->timeline(); timeline != nullptr) {
    timeline->sample(kDeviceMemoryCounter, shared_->clock.host_seconds(),
                     static_cast<double>(memory_->use().used_bytes));
  }
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
  sample_memory();
  return data;
}

// Waits for what is under way, as cudaFree does and a pool does not: an owner that unwinds early
// takes no memory from under a kernel. Decode steps free nothing.
void CudaDevice::do_free(MemorySpace space, std::byte* data, size_t bytes) noexcept {
  {
    const std::lock_guard lock(streams_mutex_);
    for (const CudaStream* stream : streams_) {
      if (calls_.synchronize_stream(stream->native()) != cuda_status::kSuccess) {
        calls_.take_last_error();
      }
    }
  }
  if (space == MemorySpace::kHost) {
    pinned_.free(data, bytes);
    pinned_limit_.give(bytes);
    host_limit_.give(bytes);
    return;
  }
  memory_->free(data, bytes);
  sample_memory();
}

}  // namespace fasa
