#include "tests/support/fake_cuda.h"

#include <cstdlib>
#include <cstring>
#include <numeric>
#include <utility>

#include "kernels/cpu/kernels.h"
#include "kernels/cuda/launch_error.h"
#include "kernels/cuda/model/activate_inl.h"
#include "kernels/cuda/model/convolve_inl.h"
#include "kernels/cuda/model/delta_inl.h"
#include "kernels/cuda/model/experts_inl.h"
#include "kernels/cuda/model/heads_inl.h"
#include "kernels/cuda/model/norm_inl.h"
#include "kernels/cuda/model/project_experts_inl.h"
#include "kernels/cuda/model/project_packed_experts_inl.h"
#include "kernels/cuda/model/unpack_inl.h"
#include "tests/support/fake_cuda_parts.h"
#include "tests/support/simt_interpreter.h"

namespace fasa {

FakeCuda::FakeCuda() : legacy_(std::make_unique<FakeStream>(FakeStream{this, {}, nullptr})) {
  gpus.push_back({.name = "Fake GPU",
                  .pci_bus_id = "0000:00:00.0",
                  .major = 9,
                  .minor = 0,
                  .memory_bytes = uint64_t{2} << 30,
                  .memory_pools = true,
                  .shares_host_addresses = true,
                  .prohibited = false});
}

FakeCuda::~FakeCuda() {
  for (const auto& [data, bytes] : blocks_) std::free(const_cast<std::byte*>(data));
}

FakeCuda::FakeStream& FakeCuda::stream_of(void* stream) {
  return stream == legacy_stream() ? *legacy_ : *static_cast<FakeStream*>(stream);
}

void FakeCuda::fail_call(std::string name, int64_t nth, CudaStatus status) {
  failing_calls_[std::move(name)] = {nth, status};
}
void FakeCuda::fail_operation(int64_t nth, CudaStatus status) {
  failing_operation_ = nth;
  operation_status_ = status;
}
void FakeCuda::synchronize_all() {
  const std::lock_guard lock(mutex_);
  run_all(*legacy_);
  for (const void* const stream : streams_) run_all(stream_of(const_cast<void*>(stream)));
}
void FakeCuda::pass_time(double seconds) {
  const std::lock_guard lock(mutex_);
  seconds_ += seconds;
}

CudaStatus FakeCuda::fail(CudaStatus status) { return last_error_ = status; }

CudaStatus FakeCuda::enter(const char* name) {
  ++calls[name];
  if (lost_ != cuda_status::kSuccess) return fail(lost_);
  const auto failing = failing_calls_.find(name);
  if (failing == failing_calls_.end() || failing->second.first == 0) return cuda_status::kSuccess;
  if (--failing->second.first > 0) return cuda_status::kSuccess;
  const CudaStatus status = failing->second.second;
  failing_calls_.erase(failing);
  return fail(status);
}

void FakeCuda::enqueue(FakeStream& stream, std::function<void()> work) {
  const std::lock_guard lock(mutex_);
  if (stream.capture != nullptr) {
    if (stream.capture->broken) {
      fail(cuda_status::kCaptureInvalidated);
    } else {
      stream.capture->add(stream, std::move(work));
    }
    return;
  }
  stream.queue.push_back({std::move(work), nullptr, nullptr});
  if (eager) run_all(stream);
}

void FakeCuda::run_next(FakeStream& stream) {
  const Operation operation = std::move(stream.queue.front());
  stream.queue.pop_front();
  seconds_ += 1e-6;
  if (operation.waits != nullptr) reach(operation.waits);
  if (operation.work && lost_ == cuda_status::kSuccess) {
    if (failing_operation_ > 0 && --failing_operation_ == 0) {
      lost_ = operation_status_;
    } else {
      operation.work();
    }
  }
  if (operation.records != nullptr) {
    operation.records->passed = true;
    operation.records->seconds = seconds_;
  }
}

void FakeCuda::run_all(FakeStream& stream) {
  while (!stream.queue.empty()) run_next(stream);
}

void FakeCuda::reach(const std::shared_ptr<Recording>& recording) {
  while (!recording->passed) run_next(*recording->stream);
}

bool FakeCuda::on_device(const void* data, size_t bytes) const {
  const auto* begin = static_cast<const std::byte*>(data);
  auto block = blocks_.upper_bound(begin);
  if (block == blocks_.begin()) return false;
  --block;
  return begin + bytes <= block->first + block->second;
}

bool FakeCuda::pinned(const void* data, size_t bytes) const {
  const auto* begin = static_cast<const std::byte*>(data);
  auto range = registered.upper_bound(begin);
  if (range == registered.begin()) return false;
  --range;
  return begin + bytes <= range->first + range->second;
}

uint64_t FakeCuda::left() const {
  const uint64_t used = device_bytes + kept_bytes_ + graph_bytes_ + others_bytes;
  return used < gpus[0].memory_bytes ? gpus[0].memory_bytes - used : 0;
}

std::string FakeCuda::name_of(CudaStatus status) {
  switch (status) {
    case cuda_status::kOutOfMemory:
      return "cudaErrorMemoryAllocation";
    case cuda_status::kIllegalAddress:
      return "cudaErrorIllegalAddress";
    default:
      return "cudaError" + std::to_string(status);
  }
}
std::string FakeCuda::text_of(CudaStatus status) { return "status " + std::to_string(status); }

CudaStatus FakeCuda::take_last_error() {
  const std::lock_guard lock(mutex_);
  ++calls["take_last_error"];
  return std::exchange(last_error_, cuda_status::kSuccess);
}

CudaStatus FakeCuda::versions(int* driver, int* runtime) {
  const std::lock_guard lock(mutex_);
  if (const CudaStatus status = enter("versions")) return status;
  *driver = driver_version;
  *runtime = runtime_version;
  return cuda_status::kSuccess;
}

CudaStatus FakeCuda::count_gpus(int* count) {
  const std::lock_guard lock(mutex_);
  if (const CudaStatus status = enter("count_gpus")) return status;
  if (count_status != cuda_status::kSuccess) return fail(count_status);
  *count = static_cast<int>(gpus.size());
  return cuda_status::kSuccess;
}

CudaStatus FakeCuda::describe(int gpu, CudaGpu* description) {
  const std::lock_guard lock(mutex_);
  if (const CudaStatus status = enter("describe")) return status;
  *description = gpus.at(static_cast<size_t>(gpu));
  return cuda_status::kSuccess;
}

namespace {
thread_local int t_gpu = 0;  // of the calling thread, as the runtime has it
}

CudaStatus FakeCuda::current_gpu(int* gpu) {
  const std::lock_guard lock(mutex_);
  if (const CudaStatus status = enter("current_gpu")) return status;
  *gpu = t_gpu;
  return cuda_status::kSuccess;
}

CudaStatus FakeCuda::use_gpu(int gpu) {
  const std::lock_guard lock(mutex_);
  if (const CudaStatus status = enter("use_gpu")) return status;
  t_gpu = gpu;
  return cuda_status::kSuccess;
}

CudaStatus FakeCuda::free_memory(uint64_t* free_bytes, uint64_t* total_bytes) {
  const std::lock_guard lock(mutex_);
  if (const CudaStatus status = enter("free_memory")) return status;
  *free_bytes = left();
  *total_bytes = gpus[0].memory_bytes;
  return cuda_status::kSuccess;
}

CudaStatus FakeCuda::create_pool(int, void** pool) {
  const std::lock_guard lock(mutex_);
  if (const CudaStatus status = enter("create_pool")) return status;
  ++live_pools;
  *pool = this;  // there is one pool, so any address will do
  return cuda_status::kSuccess;
}

CudaStatus FakeCuda::destroy_pool(void*) {
  const std::lock_guard lock(mutex_);
  --live_pools;
  kept_bytes_ = 0;
  return enter("destroy_pool");
}

CudaStatus FakeCuda::trim_pool(void*) {
  const std::lock_guard lock(mutex_);
  if (const CudaStatus status = outside_capture("trim_pool")) return status;
  kept_bytes_ = 0;
  return cuda_status::kSuccess;
}

CudaStatus FakeCuda::allocate(void** data, size_t bytes, void* pool, void*) {
  const std::lock_guard lock(mutex_);
  if (const CudaStatus status = outside_capture("allocate")) return status;
  // The pool reuses its cached memory, in one piece where that suffices.
  const uint64_t reused = pool != nullptr && kept_bytes_ >= bytes ? bytes : 0;
  if (reused == 0 && bytes > left()) return fail(cuda_status::kOutOfMemory);
  auto* block = static_cast<std::byte*>(std::aligned_alloc(256, (bytes + 255) / 256 * 256));
  kept_bytes_ -= reused;
  device_bytes += bytes;
  blocks_.emplace(block, bytes);
  *data = block;
  return cuda_status::kSuccess;
}

CudaStatus FakeCuda::free(void* data, void* pool, void* stream) {
  const std::lock_guard lock(mutex_);
  if (Capture* const capture = capture_here()) {
    return break_capture(*capture, cuda_status::kCaptureUnsupported);
  }
  run_all(stream_of(stream));  // in stream order
  const auto block = blocks_.find(static_cast<std::byte*>(data));
  if (block == blocks_.end()) return fail(cuda_status::kInvalidValue);
  device_bytes -= block->second;
  if (pool != nullptr) kept_bytes_ += block->second;
  std::free(data);
  blocks_.erase(block);
  return enter("free");
}

CudaStatus FakeCuda::register_host(void* data, size_t bytes) {
  const std::lock_guard lock(mutex_);
  if (const CudaStatus status = outside_capture("register_host")) return status;
  ++registrations;
  registered.emplace(static_cast<std::byte*>(data), bytes);
  return cuda_status::kSuccess;
}

CudaStatus FakeCuda::unregister_host(void* data) {
  const std::lock_guard lock(mutex_);
  if (registered.erase(static_cast<std::byte*>(data)) == 0) return fail(cuda_status::kInvalidValue);
  return enter("unregister_host");
}

CudaStatus FakeCuda::create_stream(void** stream, StreamPriority) {
  const std::lock_guard lock(mutex_);
  if (const CudaStatus status = enter("create_stream")) return status;
  ++live_streams;
  *stream = new FakeStream{this, {}, nullptr};
  streams_.insert(*stream);
  return cuda_status::kSuccess;
}

CudaStatus FakeCuda::locate(const void* data, CudaLocation* location) {
  const std::lock_guard lock(mutex_);
  if (const CudaStatus status = enter("locate")) return status;
  *location = {};
  const auto* at = static_cast<const std::byte*>(data);
  for (const auto& [begin, bytes] : elsewhere) {
    if (at < begin || at >= begin + bytes) continue;
    *location = {CudaLocation::Kind::kDevice, 1};
    return cuda_status::kSuccess;
  }
  if (pinned(data, 1)) {
    location->kind = CudaLocation::Kind::kPinned;
  } else if (on_device(data, 1) || strangers_on_device) {
    location->kind = CudaLocation::Kind::kDevice;
  }
  return cuda_status::kSuccess;
}

// A recording may outlive its stream: all of the stream's work is done first.
CudaStatus FakeCuda::destroy_stream(void* stream) {
  const std::lock_guard lock(mutex_);
  if (gone(stream)) return fail(cuda_status::kInvalidHandle);
  run_all(stream_of(stream));
  streams_.erase(stream);
  delete &stream_of(stream);
  --live_streams;
  return enter("destroy_stream");
}

CudaStatus FakeCuda::synchronize_stream(void* stream) {
  const std::lock_guard lock(mutex_);
  if (const CudaStatus status = outside_capture("synchronize_stream")) return status;
  if (gone(stream)) return fail(cuda_status::kInvalidHandle);
  if (const auto& capture = stream_of(stream).capture; capture != nullptr) {
    return break_capture(*capture, cuda_status::kCaptureUnsupported);
  }
  run_all(stream_of(stream));
  return lost_ == cuda_status::kSuccess ? lost_ : fail(lost_);
}

CudaStatus FakeCuda::gpu_of_stream(void* stream, int* gpu) {
  const std::lock_guard lock(mutex_);
  if (const CudaStatus status = enter("gpu_of_stream")) return status;
  const bool foreign = foreign_streams.contains(stream);
  if (gone(stream) && !foreign) return fail(cuda_status::kInvalidHandle);
  *gpu = foreign ? 1 : 0;
  return cuda_status::kSuccess;
}

CudaStatus FakeCuda::create_event(void** event) {
  const std::lock_guard lock(mutex_);
  if (const CudaStatus status = enter("create_event")) return status;
  ++live_events;
  *event = new FakeEvent;
  return cuda_status::kSuccess;
}

CudaStatus FakeCuda::destroy_event(void* event) {
  const std::lock_guard lock(mutex_);
  delete static_cast<FakeEvent*>(event);
  --live_events;
  return enter("destroy_event");
}

CudaStatus FakeCuda::record(void* event, void* stream) {
  const std::lock_guard lock(mutex_);
  if (const CudaStatus status = enter_stream("record", stream)) return status;
  auto& recorded = *static_cast<FakeEvent*>(event);
  recorded.capture = stream_of(stream).capture;
  if (recorded.capture != nullptr) {
    recorded.latest = nullptr;
    recorded.nodes = recorded.capture->ends[&stream_of(stream)];
    return cuda_status::kSuccess;
  }
  auto recording = std::make_shared<Recording>();
  recording->stream = &stream_of(stream);
  static_cast<FakeEvent*>(event)->latest = recording;
  stream_of(stream).queue.push_back({nullptr, std::move(recording), nullptr});
  return cuda_status::kSuccess;
}

// A query makes a little progress, so that a caller that polls succeeds in the end.
CudaStatus FakeCuda::query_event(void* event) {
  const std::lock_guard lock(mutex_);
  if (const CudaStatus status = outside_capture("query_event")) return status;
  if (captured(event)) return fail(cuda_status::kCapturedEvent);
  const auto& latest = static_cast<FakeEvent*>(event)->latest;
  if (latest == nullptr || latest->passed) return cuda_status::kSuccess;
  run_next(*latest->stream);
  if (lost_ != cuda_status::kSuccess) return fail(lost_);
  return latest->passed ? cuda_status::kSuccess : cuda_status::kNotReady;
}

CudaStatus FakeCuda::synchronize_event(void* event) {
  const std::lock_guard lock(mutex_);
  if (const CudaStatus status = outside_capture("synchronize_event")) return status;
  if (captured(event)) return fail(cuda_status::kCapturedEvent);
  const auto& latest = static_cast<FakeEvent*>(event)->latest;
  if (latest != nullptr) reach(latest);
  return lost_ == cuda_status::kSuccess ? lost_ : fail(lost_);
}

CudaStatus FakeCuda::elapsed(float* milliseconds, void* from, void* to) {
  const std::lock_guard lock(mutex_);
  if (const CudaStatus status = outside_capture("elapsed")) return status;
  if (captured(from) || captured(to)) return fail(cuda_status::kCapturedEvent);
  const auto& begin = static_cast<FakeEvent*>(from)->latest;
  const auto& end = static_cast<FakeEvent*>(to)->latest;
  if (begin == nullptr || end == nullptr) return fail(cuda_status::kInvalidValue);
  if (!begin->passed || !end->passed) return cuda_status::kNotReady;
  *milliseconds = static_cast<float>((end->seconds - begin->seconds) * 1e3);
  return cuda_status::kSuccess;
}

// As in the runtime: unpinned host memory is read at once, and written before the call returns.
CudaStatus FakeCuda::copy(void* destination, const void* source, size_t bytes, CopyKind kind,
                          void* stream) {
  const std::lock_guard lock(mutex_);
  if (const CudaStatus status = enter_stream("copy", stream)) return status;
  ++copies;
  const bool to_device = kind == CopyKind::kHostToDevice || kind == CopyKind::kDeviceToDevice;
  const bool from_device = kind == CopyKind::kDeviceToHost || kind == CopyKind::kDeviceToDevice;
  const auto lies = [&](const void* data, bool there) {
    return on_device(data, bytes) == there || (strangers_on_device && !pinned(data, bytes));
  };
  if (!lies(destination, to_device) || !lies(source, from_device)) {
    return fail(cuda_status::kInvalidValue);
  }
  FakeStream& target = stream_of(stream);
  if (target.capture != nullptr &&
      ((!from_device && !pinned(source, bytes)) || (!to_device && !pinned(destination, bytes)))) {
    return break_capture(*target.capture, cuda_status::kCaptureUnsupported);
  }
  if (kind == CopyKind::kHostToDevice && !pinned(source, bytes)) {
    const auto* from = static_cast<const std::byte*>(source);
    enqueue(target, [destination, staged = std::vector<std::byte>(from, from + bytes)] {
      std::memcpy(destination, staged.data(), staged.size());
    });
    return cuda_status::kSuccess;
  }
  enqueue(target, [destination, source, bytes] { std::memcpy(destination, source, bytes); });
  if (kind == CopyKind::kDeviceToHost && !pinned(destination, bytes)) run_all(target);
  return cuda_status::kSuccess;
}

CudaStatus FakeCuda::copy_all(std::span<const CopyRange> ranges, void* stream) {
  const std::lock_guard lock(mutex_);
  if (const CudaStatus status = outside_capture("copy_all")) return status;
  if (driver_version < 12080) return fail(cuda_status::kNotSupported);
  if (stream == nullptr || stream == legacy_stream()) return fail(cuda_status::kInvalidValue);
  for (const CopyRange& range : ranges) {
    const bool to = on_device(range.destination, range.bytes);
    const bool from = on_device(range.source, range.bytes);
    if (!(to || pinned(range.destination, range.bytes)) ||
        !(from || pinned(range.source, range.bytes))) {
      return fail(cuda_status::kInvalidValue);
    }
  }
  // The ranges are unordered, so the last is copied first.
  enqueue(stream_of(stream), [all = std::vector(ranges.begin(), ranges.end())] {
    for (auto range = all.rbegin(); range != all.rend(); ++range) {
      std::memcpy(range->destination, range->source, range->bytes);
    }
  });
  return cuda_status::kSuccess;
}

CudaStatus FakeCuda::fill(void* destination, int byte, size_t bytes, void* stream) {
  const std::lock_guard lock(mutex_);
  if (const CudaStatus status = enter_stream("fill", stream)) return status;
  if (!on_device(destination, bytes)) return fail(cuda_status::kInvalidValue);
  enqueue(stream_of(stream), [=] { std::memset(destination, byte, bytes); });
  return cuda_status::kSuccess;
}

CudaStatus FakeCuda::run_on_host(void* stream, void (*function)(void*), void* argument) {
  const std::lock_guard lock(mutex_);
  if (const CudaStatus status = enter_stream("run_on_host", stream)) return status;
  enqueue(stream_of(stream), [=] { function(argument); });
  return cuda_status::kSuccess;
}

namespace {

void project(const ProjectParams& params) {
  const auto element = [&](const void* data, int64_t index) {
    return static_cast<double>(load_element(params.dtype, data, index));
  };
  for (int64_t one = 0; one < params.batch; ++one) {
    std::vector<double> x;
    for (int64_t row = 0; row < params.rows; ++row) {
      const int64_t at = one * params.x_step + row * params.row_stride();
      for (int64_t i = 0; i < params.inputs; ++i) x.push_back(element(params.x, at + i));
    }
    std::vector<double> weights(static_cast<size_t>(params.inputs));
    for (int64_t column = 0; column < params.columns; ++column) {
      const int64_t at = one * params.weights_step + column * params.inputs;
      for (size_t i = 0; i < weights.size(); ++i) {
        weights[i] = element(params.weights, at + static_cast<int64_t>(i));
      }
      for (int64_t row = 0; row < params.rows; ++row) {
        const double sum = std::inner_product(weights.begin(), weights.end(),
                                              x.begin() + row * params.inputs, 0.0);
        params.y[one * params.y_step + row * params.y_stride + column] = static_cast<float>(sum);
      }
    }
  }
}

// A model's own operations run the CUDA kernels' bodies, interpreted; projections run a plain loop.
void run(const KernelCall& call) {
  std::visit(
      []<typename Params>(const Params& params) {
        if constexpr (CacheCalls::kHas<Params>) {
          cpu::run(params);
        } else if constexpr (std::is_same_v<Params, ProjectParams>) {
          project(params);
        } else {
          SimtInterpreter interpreter;
          cuda::start(params, SimtLauncher(interpreter));
        }
      },
      call);
}

}  // namespace

CudaPlatform FakeCuda::platform() { return platform(run); }

CudaPlatform FakeCuda::platform(Kernels kernels) {
  return {.calls = this,
          .launch =
              [this, kernels = std::move(kernels)](const KernelCall& call, void* stream) {
                // Like cuda_launcher.cuh, which takes the last error and throws.
                const std::lock_guard lock(mutex_);
                CudaStatus status = gone(stream) ? cuda_status::kInvalidHandle : lost_;
                if (status == cuda_status::kSuccess) {
                  enqueue(stream_of(stream), [kernels, call] { kernels(call); });
                  status = take_last_error();
                }
                if (status != cuda_status::kSuccess) {
                  throw cuda::LaunchError(std::string(kernel_name(call)) + ": " + name_of(status),
                                          status);
                }
              },
          .project_scratch = [] { return uint64_t{512}; },
          .times_kernels = false,  // tests that need it ask for it
          .machine_code = "75,80,86,89,90",
          .ptx = "90"};
}

DeviceOptions cuda_options() {
  DeviceOptions options;
  options.name = "cuda:0";
  options.threads = 2;
  options.kernel_times = false;
  return options;
}

std::unique_ptr<Device> open_fake(FakeCuda& fake) {
  return open_device(cuda_options(), fake.platform());
}

}  // namespace fasa
