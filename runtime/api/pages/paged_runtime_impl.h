// Implementation of PagedRuntime: the pages, the views of sequences over them, and the steps that
// all APIs share.
#pragma once

#include <span>
#include <vector>

#include "runtime/api/pages/paged_append.h"
#include "runtime/api/pages/paged_attend.h"
#include "runtime/api/pages/paged_prefill.h"
#include "runtime/api/pages/paged_runtime.h"
#include "runtime/api/pages/paged_settings.h"
#include "runtime/api/pages/paged_streams.h"
#include "runtime/api/pages/paged_views.h"

namespace fasa {

class PagedRuntime::Impl {
 public:
  Impl(Device& device, const Config& config, const Geometry& geometry, RowDType row_dtype,
       const std::vector<int16_t>& slice_dims, const PagedShape& shape)
      : shape_(shape),
        settings_(paged_settings(config, geometry, row_dtype, device.traits(), shape)),
        store_(device, settings_, shape.page_size, shape.num_pages),
        streams_(device, settings_, geometry, slice_dims),
        engine_(streams_.engine()),
        views_(streams_, store_, shape.max_sequences, !config.placement.hot_rows),
        append_(streams_, store_, views_),
        attend_(streams_, store_, views_, shape.max_steps),
        prefill_(streams_, store_, views_, append_),
        read_blocks_(device, "page tables") {}
  ~Impl();
  Impl(const Impl&) = delete;  // streams refer to it
  Impl& operator=(const Impl&) = delete;

  const Geometry& geometry() const { return engine_.geometry(); }
  const PagedShape& shape() const { return shape_; }
  PagedAppend& append() { return append_; }
  PagedAttend& attend() { return attend_; }
  PagedPrefill& prefill() { return prefill_; }
  void read(int64_t page, int layer, int first, TensorView k, TensorView v, StreamView stream);
  void copy_pages(std::span<const PageCopy> copies);
  void drop_pages(std::span<const int64_t> pages);
  int held(int64_t page, int layer) const;
  KvMemory memory() const;
  FetchMetrics metrics();
  void reset_metrics();

 private:
  const PagedShape shape_;
  const StepSettings settings_;
  PageStore store_;
  PagedStreams streams_;
  StepEngine& engine_;
  PagedViews views_;
  PagedAppend append_;
  PagedAttend attend_;
  PagedPrefill prefill_;
  PointerArray read_blocks_;
};

}  // namespace fasa
