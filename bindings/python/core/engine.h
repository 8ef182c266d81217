// A runtime with its device, shared by all Python objects that refer to it.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "bindings/python/core/caller_streams.h"
#include "runtime/fasa.hpp"

namespace fasa::python {

// The device that the config names. `auto` means the cpu, because NumPy arrays are in host memory.
std::unique_ptr<Device> open_tensor_device(const Config& config);

// Every call takes the lock: the runtime is not thread-safe, and calls release the GIL. An
// uncontended lock costs a few nanoseconds per layer.
class Engine {
 public:
  Engine(const Config& config, const Geometry& geometry, RowDType row_dtype,
         const std::vector<int16_t>& slice_dims, int64_t max_context);

  // Calls `action` with the runtime under the lock.
  template <typename Action>
  auto with(const Action& action) {
    const std::lock_guard lock(mutex_);
    return action(*runtime_);
  }

  void begin(std::span<const StepSequence> sequences);
  // Throws UsageError naming a tensor that the device cannot access.
  void append(int layer, ConstTensorView k, ConstTensorView v, StreamChoice stream);
  // On the engine's own stream, waits if the device is asynchronous, because host code may read the
  // results next.
  void attend(int layer, ConstTensorView q, TensorView out, float* lse, StreamChoice stream);
  void end(std::span<const int> kept);
  void abort();
  // Stored keys and values of committed tokens from `first` on.
  void read(SequenceId sequence, int layer, int64_t first, TensorView k, TensorView v,
            StreamChoice stream);
  bool in_step();
  // Frees the sequence now, or at the end of an open step. For destructors.
  void release(SequenceId sequence) noexcept;

  Device& device() const { return *device_; }

 private:
  StreamView stream_for(StreamChoice stream);
  void free_released();
  void wait();

  std::mutex mutex_;
  std::unique_ptr<Device> device_;
  Stream stream_;          // for calls without a stream
  bool own_work_ = false;  // it holds work that was not waited for
  CallerStreams theirs_;
  std::unique_ptr<Runtime> runtime_;
  bool in_step_ = false;
  std::vector<SequenceId> released_;
};

}  // namespace fasa::python
