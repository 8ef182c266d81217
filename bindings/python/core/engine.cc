#include "bindings/python/core/engine.h"

#include <fmt/format.h>

#include <utility>

#include "runtime/api/caller_memory.h"
#include "runtime/base/error.h"
#include "runtime/base/log.h"

namespace fasa::python {

std::unique_ptr<Device> open_tensor_device(const Config& config) {
  DeviceOptions options = config.device_options();
  if (options.name == "auto") options.name = "cpu";
  return open_device(options);
}

Engine::Engine(const Config& config, const Geometry& geometry, RowDType row_dtype,
               const std::vector<int16_t>& slice_dims, int64_t max_context)
    : device_(open_tensor_device(config)),
      stream_(device_->create_stream(StreamPriority::kNormal, "compute")),
      theirs_(*device_),
      runtime_(std::make_unique<Runtime>(*device_, config, geometry, row_dtype, slice_dims,
                                         max_context)) {}

void Engine::begin(std::span<const StepSequence> sequences) {
  const std::lock_guard lock(mutex_);
  runtime_->begin_step(sequences);
  in_step_ = true;
}

StreamView Engine::stream_for(StreamChoice stream) {
  if (stream) return theirs_.of(*stream);
  own_work_ = true;
  return stream_.view();
}

void Engine::append(int layer, ConstTensorView k, ConstTensorView v, StreamChoice stream) {
  const std::lock_guard lock(mutex_);
  require_reachable(*device_, "k", k);
  require_reachable(*device_, "v", v);
  runtime_->append(layer, k, v, stream_for(stream));
}

void Engine::attend(int layer, ConstTensorView q, TensorView out, float* lse, StreamChoice stream) {
  const std::lock_guard lock(mutex_);
  require_reachable(*device_, "q", q);
  require_reachable(*device_, "out", out);
  require_reachable(*device_, "lse", lse, sizeof(float));
  runtime_->attend(layer, q, out, lse, stream_for(stream));
  wait();
}

void Engine::end(std::span<const int> kept) {
  const std::lock_guard lock(mutex_);
  runtime_->end_step(kept);
  in_step_ = false;
  // A step without attend() has not waited yet.
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
    // Ignored: the failed step's sequences report the error.
  }
  free_released();
}

// A failed stream executes nothing any more: the next step gets a new one. An open step keeps its
// stream until it is aborted.
void Engine::wait() {
  if (!std::exchange(own_work_, false) || device_->unified()) return;
  try {
    device_->synchronize(stream_.view());
  } catch (const DeviceError&) {
    own_work_ = in_step_;
    if (!in_step_) stream_ = device_->create_stream(StreamPriority::kNormal, "compute");
    throw;
  }
}

void Engine::read(SequenceId sequence, int layer, int64_t first, TensorView k, TensorView v,
                  StreamChoice stream) {
  const std::lock_guard lock(mutex_);
  require_reachable(*device_, "k", k);
  require_reachable(*device_, "v", v);
  runtime_->read(sequence, layer, first, k, v, stream_for(stream));
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
    log_warning(fmt::format("freeing a sequence failed: {}", error.what()));
  }
}

}  // namespace fasa::python
