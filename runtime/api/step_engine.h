// What all steps of a runtime share, whichever API begins them: the control stream, the executor
// with its streams, scratch, counters, and the parameters that are the same in every step. The APIs
// differ by their Fences: how later work is ordered behind earlier work, and what fails with it.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "offload/device.h"
#include "offload/fence.h"
#include "runtime/api/fetch_counters.h"
#include "runtime/base/geometry.h"
#include "scheduler/step/descriptor_buffer.h"
#include "scheduler/step/step_executor.h"
#include "scheduler/step/step_scratch.h"
#include "scheduler/step_settings.h"

namespace fasa {

class StepEngine {
 public:
  // `slice_dims`: see Runtime. `device`, `settings` and `fences` outlive the engine. Throws
  // UsageError for wrong slice dimensions, and BudgetError.
  StepEngine(Device& device, const StepSettings& settings, const Geometry& geometry,
             const std::vector<int16_t>& slice_dims, Fences& fences);
  StepEngine(const StepEngine&) = delete;  // streams refer to it
  StepEngine& operator=(const StepEngine&) = delete;

  Device& device() const { return device_; }
  const StepSettings& settings() const { return settings_; }
  const Geometry& geometry() const { return geometry_; }
  StreamView control() const { return control_.view(); }     // uploads and repairs before a step
  const Stream& control_stream() const { return control_; }  // after a restart another one
  StepExecutor& executor() const { return *executor_; }
  StepScratch& scratch() { return scratch_; }
  FetchCounters& counters() { return counters_; }
  uint64_t bytes() const {
    return scratch_.bytes() + counters_.bytes() + slopes_.bytes() + slice_dims_.bytes();
  }

  // Makes streams and events anew. They must be idle.
  void restart();
  // An event for all work given to the control stream so far, valid until it is recorded again.
  EventView record_tables();
  EventView tables_ready() const { return tables_ready_.view(); }

  // Fills in what is the same in all steps. Tables on the device are the slot's.
  void describe(const DescriptorBuffer& slot, StepContext* step) const;
  // Parameters for the main layout's layer `index` of the sequences on one of the slot's lists.
  StepParams params(const DescriptorBuffer& slot, DescriptorBuffer::Kind kind, int index) const;
  // Makes what the device has beside the rows of the sequences on the list kRestore. Returns false
  // if there are none.
  bool restore(const DescriptorBuffer& slot) const;

 private:
  void upload_slopes();
  void upload_slice_dims(const std::vector<int16_t>& slice_dims);

  Device& device_;
  const StepSettings& settings_;
  const Geometry geometry_;
  Event tables_ready_;
  Stream control_;
  std::unique_ptr<StepExecutor> executor_;
  StepScratch scratch_;
  FetchCounters counters_;
  Buffer slopes_;
  Buffer slice_dims_;
};

}  // namespace fasa
