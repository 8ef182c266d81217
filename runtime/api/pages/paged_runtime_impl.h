// Implementation of PagedRuntime: the pages, the views of sequences over them, and the pipeline
// that all APIs share.
#pragma once

#include <span>
#include <vector>

#include "runtime/api/pages/paged_append.h"
#include "runtime/api/pages/paged_attend.h"
#include "runtime/api/pages/paged_parts.h"
#include "runtime/api/pages/paged_prefill.h"
#include "runtime/api/pages/paged_runtime.h"
#include "runtime/api/pages/paged_views.h"

namespace fasa {

class PagedRuntime::Impl {
 public:
  Impl(Device& device, const Config& config, const Geometry& geometry, RowDType row_dtype,
       const std::vector<int16_t>& slice_dims, const PagedShape& shape)
      : parts_(device, config, geometry, row_dtype, slice_dims, shape),
        views_(parts_),
        append_(parts_, views_),
        attend_(parts_, views_),
        prefill_(parts_, views_, append_),
        read_blocks_(device, "page tables") {}
  ~Impl();
  Impl(const Impl&) = delete;  // streams refer to it
  Impl& operator=(const Impl&) = delete;

  const Geometry& geometry() const { return parts_.geometry; }
  const PagedShape& shape() const { return parts_.shape; }
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
  PagedParts parts_;
  PagedViews views_;
  PagedAppend append_;
  PagedAttend attend_;
  PagedPrefill prefill_;
  PointerArray read_blocks_;
};

}  // namespace fasa
