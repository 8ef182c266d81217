// State that the parts of a paged runtime share. On the device every call waits for the previous
// one, because callers may change streams.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "runtime/api/fetch_counters.h"
#include "runtime/api/pages/paged_guard.h"
#include "runtime/api/pages/paged_runtime.h"
#include "scheduler/cache/page_store.h"
#include "scheduler/descriptor_buffer.h"
#include "scheduler/step_pipeline.h"
#include "scheduler/step_scratch.h"

namespace fasa {

struct PagedParts final : Fences {
  PagedParts(Device& device, const Config& config, const Geometry& geometry, RowDType row_dtype,
             const std::vector<int16_t>& slice_dims, const PagedShape& shape);
  PagedParts(const PagedParts&) = delete;  // streams refer to it
  PagedParts& operator=(const PagedParts&) = delete;

  // Both throw UsageError.
  void require_usable(const char* call, int layer) const;
  void require_page(int64_t page) const;

  // Waits until all work has finished. Throws DeviceError.
  void drain();
  void wait(Fence) override { drain(); }
  Fence latest() const override { return {1}; }
  // After all earlier calls.
  void order(Fence) override;
  // Makes `stream` wait for the last call and for the upload of its tables.
  void wait_for_tables(StreamView stream, OperationTag tag);
  void record_tables() { device.record(tables_ready.view(), control.view()); }
  void record_last(StreamView stream) { device.record(last.view(), stream); }
  // Rebuilds the tails and protected rows on the slot's list from the rows.
  void restore(DescriptorBuffer& slot);
  // Fills in the fields that all tables share; device tables are the slot's.
  void describe(DescriptorBuffer& slot, StepBatch* tables) const;

  Device& device;
  const Geometry geometry;
  const PagedShape shape;
  const StepSettings settings;
  PageStore store;
  int hot_rows;  // of each sequence
  StepScratch scratch;
  Stream control;
  Event tables_ready;
  Event last;
  Event written_back;
  std::unique_ptr<StepPipeline> pipeline;
  Buffer slice_dims;
  FetchCounters counters;
  PagedGuard guard;
};

}  // namespace fasa
