// A runtime with its device, shared by everything in Python that refers to it.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "runtime/fasa.hpp"

namespace fasa::python {

// The device that the config names, `auto` being the cpu: tensors of Python are in host memory
// here. Throws UsageError for a device that cannot reach that.
std::unique_ptr<Device> open_host_device(const Config& config);

// Every call takes the lock: the runtime is for one thread at a time, and Python's threads run on
// while one of them is in here. Uncontended, a lock costs a few nanoseconds of a layer's work.
class Engine {
 public:
  Engine(const Config& config, const Geometry& geometry, RowDType row_dtype,
         const std::vector<int16_t>& slice_dims, int64_t max_context);

  // `action` with the runtime, alone.
  template <typename Action>
  auto with(const Action& action) {
    const std::lock_guard lock(mutex_);
    return action(*runtime_);
  }

  void begin(std::span<const StepSequence> sequences);
  void append(int layer, ConstTensorView k, ConstTensorView v);
  // Waits where the device works behind the caller's back: results lie in host memory that the
  // caller reads next.
  void attend(int layer, ConstTensorView q, TensorView out, float* lse);
  void end();
  void abort();
  // Stored keys and values of committed tokens from `first` on; there on return.
  void read(SequenceId sequence, int layer, int64_t first, TensorView k, TensorView v);
  bool in_step();
  // Frees the sequence now, or when the step that is open has ended: for owners that go away.
  void release(SequenceId sequence) noexcept;

  Device& device() const { return *device_; }

 private:
  void free_released();
  void wait();

  std::mutex mutex_;
  std::unique_ptr<Device> device_;
  Stream stream_;
  std::unique_ptr<Runtime> runtime_;
  bool in_step_ = false;
  std::vector<SequenceId> released_;
};

}  // namespace fasa::python
