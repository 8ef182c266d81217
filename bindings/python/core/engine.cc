#include "bindings/python/core/engine.h"

#include <fmt/format.h>

#include <utility>

#include "runtime/base/error.h"
#include "runtime/base/log.h"

namespace fasa::python {

std::unique_ptr<Device> open_host_device(const Config& config) {
  DeviceOptions options = config.device_options();
  if (options.name == "auto") options.name = "cpu";
  auto device = open_device(options);
  if (device->host_work() == nullptr) {
    throw UsageError(fmt::format(
        "device.name = \"{}\": the Python package takes tensors in host memory; allowed: "
        "auto, cpu, emulated",
        options.name));
  }
  return device;
}

Engine::Engine(const Config& config, const Geometry& geometry, RowDType row_dtype,
               const std::vector<int16_t>& slice_dims, int64_t max_context)
    : device_(open_host_device(config)),
      stream_(device_->create_stream(StreamPriority::kNormal, "compute")),
      runtime_(std::make_unique<Runtime>(*device_, config, geometry, row_dtype, slice_dims,
                                         max_context)) {}

void Engine::begin(std::span<const StepSequence> sequences) {
  const std::lock_guard lock(mutex_);
  runtime_->begin_step(sequences);
  in_step_ = true;
}

void Engine::append(int layer, ConstTensorView k, ConstTensorView v) {
  const std::lock_guard lock(mutex_);
  runtime_->append(layer, k, v, stream_.view());
}

void Engine::attend(int layer, ConstTensorView q, TensorView out, float* lse) {
  const std::lock_guard lock(mutex_);
  runtime_->attend(layer, q, out, lse, stream_.view());
  wait();
}

void Engine::end() {
  const std::lock_guard lock(mutex_);
  runtime_->end_step();
  in_step_ = false;
  // A step that only appended has not waited for anything yet.
  free_released();
  wait();
}

void Engine::abort() {
  const std::lock_guard lock(mutex_);
  runtime_->abort_step();
  in_step_ = false;
  try {
    wait();
  } catch (const DeviceError&) {
    // The step's failure, which its sequences have.
  }
  free_released();
}

// In a stream that has failed nothing runs any more: the next step gets another. An open step keeps
// its own until it is aborted.
void Engine::wait() {
  if (device_->unified()) return;
  try {
    device_->synchronize(stream_.view());
  } catch (const DeviceError&) {
    if (!in_step_) stream_ = device_->create_stream(StreamPriority::kNormal, "compute");
    throw;
  }
}

void Engine::read(SequenceId sequence, int layer, int64_t first, TensorView k, TensorView v) {
  const std::lock_guard lock(mutex_);
  runtime_->read(sequence, layer, first, k, v, stream_.view());
  wait();
}

bool Engine::in_step() {
  const std::lock_guard lock(mutex_);
  return in_step_;
}

void Engine::free_released() {
  for (const SequenceId sequence : std::exchange(released_, {})) runtime_->free(sequence);
}

void Engine::release(SequenceId sequence) noexcept {
  const std::lock_guard lock(mutex_);
  try {
    released_.push_back(sequence);
    if (!in_step_) free_released();
  } catch (const std::exception& error) {
    log_warning(fmt::format("freeing a sequence: {}", error.what()));
  }
}

}  // namespace fasa::python
