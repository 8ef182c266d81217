// The calls of a pages API on a runtime's streams. On the device every call waits for the previous
// one, because callers may change streams. The first failure ends the runtime: pages are not tied
// to sequences, so nothing that they hold can be trusted afterwards, and every later call throws
// that error again.
#pragma once

#include <cstdint>
#include <new>
#include <optional>
#include <string>
#include <vector>

#include "runtime/api/step_engine.h"
#include "runtime/base/error.h"

namespace fasa {

class PagedStreams final : public Fences {
 public:
  // See StepEngine.
  PagedStreams(Device& device, const StepSettings& settings, const Geometry& geometry,
               const std::vector<int16_t>& slice_dims)
      : engine_(device, settings, geometry, slice_dims, *this),
        last_(device.create_event()),
        written_back_(device.create_event()) {}

  StepEngine& engine() { return engine_; }
  const StepEngine& engine() const { return engine_; }
  // Throws UsageError, and DeviceError after a failure.
  void require_usable(const char* call, int layer) const;
  // Does the work of a call, and remembers its failure.
  template <typename Work>
  void run(const Work& work) {
    begun_ = false;
    try {
      work();
    } catch (const DeviceError& error) {
      half_done_ = true;
      if (!failure_) failure_ = error.what();
      throw;
    } catch (const std::bad_alloc&) {
      half_done_ |= begun_;
      require_usable();
      throw;
    }
  }
  // From here on the call changes state: running out of host memory would leave it half done.
  void begin() { begun_ = true; }

  // Waits until all work has finished. Throws DeviceError.
  void drain();
  void wait(Fence) override { drain(); }
  Fence latest() const override { return {1}; }
  // After all earlier calls.
  void order(Fence) override;
  // Makes `stream` wait for the last call and for the upload of its tables.
  void wait_for_tables(StreamView stream, OperationTag tag);
  void record_last(StreamView stream) { engine_.device().record(last_.view(), stream); }

 private:
  void require_usable() const;

  StepEngine engine_;
  Event last_;
  Event written_back_;
  std::optional<std::string> failure_;
  bool begun_ = false;
  bool half_done_ = false;
};

}  // namespace fasa
