#include "runtime/api/step_engine.h"

#include <fmt/format.h>

#include "kernels/slice_pack.h"
#include "runtime/base/error.h"
#include "runtime/base/raw_slopes.h"

namespace fasa {
namespace {

// Without slices, everything passes.
void check_slice_dims(const std::vector<int16_t>& slice_dims, const StepSettings& settings,
                      const Geometry& geometry) {
  const CacheLayout& layout = settings.layout;
  if (layout.slice.dims == 0) return;
  const auto expected = static_cast<size_t>(settings.layer_count()) *
                        static_cast<size_t>(layout.kv_heads * layout.slice.coded_dims());
  if (slice_dims.size() != expected) {
    throw UsageError(fmt::format("slice_dims has {} entries; layers x kv_heads x dims is {}",
                                 slice_dims.size(), expected));
  }
  for (const int16_t dim : slice_dims) {
    if (dim >= 0 && dim < geometry.key_dim) continue;
    throw UsageError(
        fmt::format("slice_dims names dimension {}; a key has 0 to {}", dim, geometry.key_dim - 1));
  }
}

}  // namespace

StepEngine::StepEngine(Device& device, const StepSettings& settings, const Geometry& geometry,
                       const std::vector<int16_t>& slice_dims, Fences& fences)
    : device_(device),
      settings_(settings),
      geometry_(geometry),
      scratch_(device, settings, fences),
      counters_(device, settings.layer_count()) {
  check_slice_dims(slice_dims, settings, geometry);
  restart();
  upload_slopes();
  upload_slice_dims(slice_dims);
  counters_.reset(control());
}

void StepEngine::restart() {
  control_ = device_.create_stream(StreamPriority::kHigh, "control");
  executor_ = std::make_unique<StepExecutor>(device_, settings_);
  tables_ready_ = device_.create_event();
}

EventView StepEngine::record_tables() {
  device_.record(tables_ready_.view(), control());
  return tables_ready_.view();
}

// Kernels add slopes to q·k before the scale.
void StepEngine::upload_slopes() {
  const std::vector<float> slopes = raw_slopes(geometry_);
  if (slopes.empty()) return;
  const size_t bytes = slopes.size() * sizeof(float);
  slopes_ = device_.allocate(MemorySpace::kDevice, bytes, "ALiBi slopes");
  device_.copy(slopes_.data(), slopes.data(), bytes, CopyKind::kHostToDevice, control());
  device_.synchronize(control());
}

// Only layers that store slices have them.
void StepEngine::upload_slice_dims(const std::vector<int16_t>& slice_dims) {
  const CacheLayout& layout = settings_.layout;
  const auto of_layer = static_cast<ptrdiff_t>(layout.kv_heads * layout.slice.coded_dims());
  std::vector<int16_t> dims;
  for (int layer = 0; layer < settings_.layer_count() && of_layer > 0; ++layer) {
    const LayerSettings& own = settings_.layer(layer);
    if (own.in_window_rows || own.sharer > 0) continue;
    const auto first = slice_dims.begin() + layer * of_layer;
    dims.insert(dims.end(), first, first + of_layer);
  }
  dims = stored_dims(layout.slice, dims);
  const size_t bytes = dims.size() * sizeof(int16_t);
  slice_dims_ = device_.allocate(MemorySpace::kDevice, bytes, "slice dimensions");
  device_.copy(slice_dims_.data(), dims.data(), bytes, CopyKind::kHostToDevice, control());
  device_.synchronize(control());
}

void StepEngine::describe(const DescriptorBuffer& slot, StepContext* step) const {
  step->on_device = slot.device(DescriptorBuffer::kStep);
  step->on_host = slot.host(DescriptorBuffer::kStep);
  step->in_window_rows =
      settings_.has_window_rows() ? slot.device(DescriptorBuffer::kWindowRows) : nullptr;
  step->second_write_back_buffer = scratch_.prefill().second_write_back_buffer;
  step->slice_dims = slice_dims_.as<int16_t>();
  step->slopes = slopes_ ? slopes_.as<float>() : nullptr;
  step->counters = counters_.layers();
  step->prompt_bytes = counters_.prompt_bytes();
  step->tables_ready = tables_ready();
}

StepParams StepEngine::params(const DescriptorBuffer& slot, DescriptorBuffer::Kind kind,
                              int index) const {
  const CacheLayout& layout = settings_.layout;
  return {
      .layout = layout,
      .sequences = slot.device(kind),
      .count = static_cast<int>(slot.host(kind).size()),
      .layer = index,
      .slice_dims = slice_dims_.as<int16_t>() + layout.head_index(index, 0) * layout.slice.dims};
}

bool StepEngine::restore(const DescriptorBuffer& slot) const {
  if (slot.host(DescriptorBuffer::kRestore).empty()) return false;
  device_.enqueue(RestoreParams{.step = params(slot, DescriptorBuffer::kRestore, 0)}, control(),
                  tag_of(-1, Cause::kControl));
  return true;
}

}  // namespace fasa
