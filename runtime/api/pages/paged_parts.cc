#include "runtime/api/pages/paged_parts.h"

#include <fmt/format.h>

#include <algorithm>

#include "runtime/api/pages/paged_settings.h"
#include "runtime/api/slice_dims_upload.h"
#include "runtime/base/error.h"

namespace fasa {
namespace {

// For hot_rows = auto: hot rows per sequence, in at most half of the memory that the pages left.
int fitting_hot_rows(const Device& device, const StepSettings& settings, int sequences) {
  const CacheLayout& layout = settings.layout;
  const MemoryUse use = device.memory(MemorySpace::kDevice);
  const uint64_t room = use.limit_bytes - std::min(use.limit_bytes, use.used_bytes);
  const auto row = static_cast<uint64_t>(layout.heads()) *
                   static_cast<uint64_t>(layout.row.bytes() + 2 * int64_t{sizeof(int32_t)});
  const uint64_t most = room / 2 / (row * static_cast<uint64_t>(sequences));
  return static_cast<int>(std::min<uint64_t>(static_cast<uint64_t>(settings.max_hot_rows), most));
}

}  // namespace

PagedParts::PagedParts(Device& on, const Config& config, const Geometry& of, RowDType row_dtype,
                       const std::vector<int16_t>& dims, const PagedShape& pages)
    : device(on),
      geometry(of),
      shape(pages),
      settings(paged_settings(config, of, row_dtype, on.traits(), pages)),
      store(on, settings, pages.page_size, pages.num_pages),
      hot_rows(settings.max_hot_rows),
      scratch(on, settings, *this),
      control(on.create_stream(StreamPriority::kHigh, "control")),
      tables_ready(on.create_event()),
      last(on.create_event()),
      written_back(on.create_event()),
      counters(on, settings.layer_count()) {
  check_slice_dims(dims, settings, geometry);
  if (!config.placement.hot_rows) {
    hot_rows = fitting_hot_rows(device, settings, shape.max_sequences);
  }
  pipeline = std::make_unique<StepPipeline>(device, settings);
  slice_dims = upload_slice_dims(device, dims, settings, control.view());
  counters.reset(control.view());
}

void PagedParts::require_usable(const char* call, int layer) const {
  guard.require_usable();
  if (layer < 0 || layer >= geometry.layers) {
    throw UsageError(
        fmt::format("{} of layer {}; allowed: 0 to {}", call, layer, geometry.layers - 1));
  }
}

void PagedParts::require_page(int64_t page) const {
  if (page >= 0 && page < shape.num_pages) return;
  throw UsageError(fmt::format("page {}: allowed: 0 to {}", page, shape.num_pages - 1));
}

void PagedParts::drain() {
  device.synchronize(last.view());
  device.synchronize(control.view());
  pipeline->synchronize();
}

// Compute waits for all streams but the one that writes back.
void PagedParts::order(Fence) {
  constexpr OperationTag kTag = tag_of(-1, Cause::kControl);
  device.wait(control.view(), last.view(), kTag);
  pipeline->record_written_back(written_back.view());
  device.wait(control.view(), written_back.view(), kTag);
}

void PagedParts::wait_for_tables(StreamView stream, OperationTag tag) {
  device.wait(stream, last.view(), tag);
  device.wait(stream, tables_ready.view(), tag);
}

void PagedParts::restore(DescriptorBuffer& slot) {
  const auto& descs = slot.host(DescriptorBuffer::kRestore);
  if (descs.empty()) return;
  const StepParams params{.layout = settings.layout,
                          .sequences = slot.device(DescriptorBuffer::kRestore),
                          .count = static_cast<int>(descs.size()),
                          .layer = 0,
                          .slice_dims = slice_dims.as<int16_t>()};
  device.enqueue(RestoreParams{.step = params}, control.view(), tag_of(-1, Cause::kControl));
}

void PagedParts::describe(DescriptorBuffer& slot, StepBatch* tables) const {
  tables->on_device = slot.device(DescriptorBuffer::kStep);
  tables->on_host = slot.host(DescriptorBuffer::kStep);
  tables->slice_dims = slice_dims.as<int16_t>();
  tables->counters = counters.layers();
  tables->tables_ready = tables_ready.view();
  tables->by_page = true;
}

}  // namespace fasa
