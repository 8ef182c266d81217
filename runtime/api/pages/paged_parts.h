// What the parts of a paged runtime share. Every call of it waits for the one before on the device,
// for callers may change streams.
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

struct PagedParts {
  PagedParts(Device& device, const Config& config, const Geometry& geometry, RowDType row_dtype,
             const std::vector<int16_t>& slice_dims, const PagedShape& shape);
  PagedParts(const PagedParts&) = delete;  // streams refer to it
  PagedParts& operator=(const PagedParts&) = delete;

  // Throw UsageError.
  void require_usable(const char* call, int layer) const;
  void require_page(int64_t page) const;

  bool indexes() const { return store.small() && settings.layout.slice.dims > 0; }
  // All work has passed.
  void drain();
  // Before a call's work on `stream`: the last call's, and its tables' upload.
  void wait_for_tables(StreamView stream, OperationTag tag);
  void record_tables() { device.record(tables_ready.view(), control.view()); }
  void record_last(StreamView stream) { device.record(last.view(), stream); }
  // Tails and protected rows are functions of the rows: those of the slot's list are made of them
  // again.
  void restore(DescriptorBuffer& slot);
  // What all tables have in common; those on the device are the slot's.
  void describe(DescriptorBuffer& slot, StepBatch* tables) const;

  Device& device;
  const Geometry geometry;
  const PagedShape shape;
  StepSettings settings;
  PageStore store;
  StepScratch scratch;
  Stream control;
  Event tables_ready;
  Event last;
  std::unique_ptr<StepPipeline> pipeline;
  Buffer slice_dims;
  FetchCounters counters;
  PagedGuard guard;
};

}  // namespace fasa
