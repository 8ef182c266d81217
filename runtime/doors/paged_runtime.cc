#include "runtime/doors/paged_runtime.h"

#include <fmt/format.h>

#include <algorithm>

#include "runtime/base/error.h"
#include "runtime/doors/paged_guard.h"
#include "runtime/doors/paged_runtime_impl.h"
#include "runtime/doors/paged_settings.h"
#include "runtime/doors/settings.h"
#include "runtime/doors/slice_dims_upload.h"

namespace fasa {
namespace {

constexpr int kLargestPage = 256;
constexpr int kSmallestPage = 16;

bool is_page_size(int tokens) {
  if (tokens < kSmallestPage || tokens > kLargestPage) return false;
  return tokens < kPageTokens ? kPageTokens % tokens == 0 : tokens % kPageTokens == 0;
}

void check_shape(const PagedShape& shape) {
  if (!is_page_size(shape.page_size)) {
    throw UsageError(fmt::format(
        "page_size = {}: allowed: 16, 32, 64, 128, 192, 256; slices are sealed {} tokens at a time",
        shape.page_size, kPageTokens));
  }
  if (shape.num_pages < 1 || shape.num_pages > INT32_MAX) {
    throw UsageError(fmt::format("num_pages = {}: allowed: 1 to {}", shape.num_pages, INT32_MAX));
  }
  if (shape.max_sequences < 1) {
    throw UsageError(fmt::format("max_sequences = {}: allowed: at least 1", shape.max_sequences));
  }
  if (shape.most_steps < 1 || shape.most_steps > kMaxSteps) {
    throw UsageError(fmt::format("most_steps = {}: allowed: 1 to {}", shape.most_steps, kMaxSteps));
  }
}

}  // namespace

StepSettings paged_settings(const Config& config, const Geometry& geometry, RowDType row_dtype,
                            const DeviceTraits& traits, const PagedShape& shape) {
  check_shape(shape);
  StepSettings settings =
      make_step_settings(config, geometry, row_dtype, traits, shape.num_pages * shape.page_size);
  if (!geometry.alibi_slopes.empty()) {
    throw UsageError("the paged door serves no model with ALiBi; the sequences door does");
  }
  if (settings.selection != nullptr) {
    throw UsageError(
        "the paged door chooses with the device's own kernels: selection.kind = fasa with its "
        "default rules, or full; the sequences door has the others");
  }
  const bool guesses =
      config.prefetch.depth.value_or(0) > 0 || (config.prefetch.predictor != PredictorKind::kAuto &&
                                                config.prefetch.predictor != PredictorKind::kNone);
  if (guesses) {
    throw UsageError(
        "the paged door fetches nothing ahead, for a call sees one layer: allowed: prefetch.depth "
        "= "
        "auto or 0, prefetch.predictor = auto or none; the sequences door prefetches");
  }
  settings.device_copies = false;
  settings.prefetch = {.predictor = PredictorKind::kNone, .depth = 0};
  if (shape.page_size >= kPageTokens) return settings;
  settings.layout.row_page = shape.page_size;
  // Dense layers read whole pages of ours. A set of all tokens gives the same bits.
  for (LayerSettings& layer : settings.layers) {
    if (layer.dense)
      layer = {.dense = false, .budget = {.tokens = 0, .share = 1}, .window = layer.window};
  }
  return settings;
}

namespace {

// hot_rows = auto: for so many sequences no more than half of what the pages left.
int fitting_hot_rows(const Device& device, const CacheLayout& layout, int sequences) {
  const MemoryUse use = device.memory(MemorySpace::kDevice);
  const uint64_t room = use.limit_bytes - std::min(use.limit_bytes, use.used_bytes);
  const auto row = static_cast<uint64_t>(layout.heads()) *
                   static_cast<uint64_t>(layout.row.bytes() + 2 * int64_t{sizeof(int32_t)});
  const uint64_t most = room / 2 / (row * static_cast<uint64_t>(sequences));
  return static_cast<int>(std::min<uint64_t>(static_cast<uint64_t>(layout.hot_rows), most));
}

}  // namespace

PagedRuntime::Impl::Impl(Device& device, const Config& config, const Geometry& geometry,
                         RowDType row_dtype, const std::vector<int16_t>& slice_dims,
                         const PagedShape& shape)
    : device_(device),
      geometry_(geometry),
      shape_(shape),
      settings_(paged_settings(config, geometry, row_dtype, device.traits(), shape)),
      store_(device, settings_, shape.page_size, shape.num_pages),
      scratch_(device, settings_),
      index_slices_(device, MemorySpace::kDevice,
                    static_cast<size_t>(settings_.layout.slice_block_bytes()), "slices"),
      control_(device.create_stream(StreamPriority::kHigh, "control")),
      tables_ready_(device.create_event()),
      last_(device.create_event()),
      append_slots_{Slot(device), Slot(device)},
      attend_slots_{Slot(device), Slot(device)},
      prefill_slots_{Slot(device), Slot(device)},
      index_slots_{DescriptorBuffer(device), DescriptorBuffer(device)},
      read_blocks_(device, "page tables"),
      counters_(device, settings_.layout) {
  check_slice_dims(slice_dims, settings_.layout, geometry);
  if (indexes() && shape.num_pages > INT32_MAX / store_.page_rows()) {
    throw UsageError(fmt::format("num_pages = {}: allowed with page_size = {}: 1 to {}",
                                 shape.num_pages, shape.page_size, INT32_MAX / store_.page_rows()));
  }
  if (!config.placement.hot_rows) {
    settings_.layout.hot_rows = fitting_hot_rows(device, settings_.layout, shape.max_sequences);
  }
  pipeline_ = std::make_unique<StepPipeline>(device_, settings_);
  slice_dims_ = upload_slice_dims(device, slice_dims, settings_.layout, control_.view());
  counters_.reset(control_.view());
}

PagedRuntime::Impl::~Impl() {
  try {
    drain();
  } catch (...) {
    // The streams' failures were reported where they were waited for.
  }
}

void PagedRuntime::Impl::require_usable(const char* call, int layer) const {
  guard_.require_usable();
  if (layer < 0 || layer >= geometry_.layers) {
    throw UsageError(
        fmt::format("{} of layer {}; allowed: 0 to {}", call, layer, geometry_.layers - 1));
  }
}

void PagedRuntime::Impl::require_page(int64_t page) const {
  if (page >= 0 && page < shape_.num_pages) return;
  throw UsageError(fmt::format("page {}: allowed: 0 to {}", page, shape_.num_pages - 1));
}

void PagedRuntime::Impl::drain() {
  device_.synchronize(last_.view());
  device_.synchronize(control_.view());
  pipeline_->synchronize();
}

// Tails and residents are functions of the rows: those of the slot's list are made of them again.
void PagedRuntime::Impl::restore(DescriptorBuffer& slot) {
  const auto& descs = slot.host(DescriptorBuffer::kRestore);
  if (descs.empty()) return;
  const StepParams params{.layout = settings_.layout,
                          .sequences = slot.device(DescriptorBuffer::kRestore),
                          .count = static_cast<int>(descs.size()),
                          .layer = 0,
                          .slice_dims = slice_dims_.as<int16_t>()};
  device_.enqueue(RestoreParams{.step = params, .rows_on_device = settings_.rows_on_device},
                  control_.view(), tag_of(-1, Cause::kControl));
}

void PagedRuntime::Impl::copy_pages(std::span<const PageCopy> copies) {
  require_usable("copy_pages", 0);
  for (const PageCopy& copy : copies) {
    require_page(copy.source);
    require_page(copy.destination);
    if (copy.source == copy.destination) {
      throw UsageError(fmt::format("copy_pages: page {} onto itself", copy.source));
    }
    if (!store_.same_in_all_layers(copy.source)) {
      throw UsageError(fmt::format(
          "copy_pages: page {} holds more tokens in some layers than in others; copy between steps",
          copy.source));
    }
  }
  guard_.run([&] {
    drain();
    guard_.begin();
    const auto copy_block = [this](std::byte* to, const std::byte* from, int64_t bytes,
                                   CopyKind kind) {
      device_.copy(to, from, static_cast<size_t>(bytes), kind, control_.view(),
                   tag_of(-1, Cause::kControl));
    };
    const CacheLayout& layout = settings_.layout;
    for (const PageCopy& copy : copies) {
      for (int part = 0; part < store_.parts(); ++part) {
        copy_block(store_.row_block(copy.destination, part), store_.row_block(copy.source, part),
                   layout.row_block_bytes(),
                   settings_.rows_on_device ? CopyKind::kDeviceToDevice : CopyKind::kHostToHost);
        if (!store_.uses_tails()) continue;
        copy_block(store_.slice_block(copy.destination, part),
                   store_.slice_block(copy.source, part), layout.slice_block_bytes(),
                   CopyKind::kDeviceToDevice);
      }
      store_.take_over(copy.source, copy.destination);
    }
    device_.record(last_.view(), control_.view());
  });
}

void PagedRuntime::Impl::drop_pages(std::span<const int64_t> pages) {
  for (const int64_t page : pages) require_page(page);
  for (const int64_t page : pages) store_.start(page);
}

int PagedRuntime::Impl::held(int64_t page, int layer) const {
  require_usable("held", layer);
  require_page(page);
  return store_.held(page, layer);
}

KvMemory PagedRuntime::Impl::memory() const {
  KvMemory memory;
  (settings_.rows_on_device ? memory.device_rows : memory.host_rows) = store_.row_bytes();
  memory.device_slices = store_.slice_bytes() + index_slices_.held_bytes();
  memory.device_scratch =
      scratch_.bytes() + slice_dims_.bytes() + counters_.bytes() + index_stage_.bytes();
  for (const DescriptorBuffer& slot : index_slots_) memory.device_scratch += slot.bytes();
  memory.device_scratch += read_blocks_.device_bytes();
  memory.host_tables += read_blocks_.host_bytes();
  for (const auto* slots : {&append_slots_, &attend_slots_, &prefill_slots_}) {
    for (const Slot& slot : *slots) {
      memory.device_scratch +=
          slot.step.bytes() + slot.rows.device_bytes() + slot.slices.device_bytes();
      memory.host_tables += slot.rows.host_bytes() + slot.slices.host_bytes();
    }
  }
  for (const auto& view : views_) {
    memory.device_slices += view->tail_bytes();
    memory.device_hot_rows += view->hot_bytes();
    memory.device_scratch += view->table_bytes();
    memory.host_tables += view->host_table_bytes();
  }
  return memory;
}

FetchMetrics PagedRuntime::Impl::metrics() {
  drain();
  return counters_.read(settings_.layout, control_.view());
}

void PagedRuntime::Impl::reset_metrics() {
  drain();
  counters_.reset(control_.view());
}

PagedRuntime::PagedRuntime(Device& device, const Config& config, const Geometry& geometry,
                           RowDType row_dtype, const std::vector<int16_t>& slice_dims,
                           const PagedShape& shape)
    : impl_(std::make_unique<Impl>(device, config, geometry, row_dtype, slice_dims, shape)) {}
PagedRuntime::~PagedRuntime() = default;
const Geometry& PagedRuntime::geometry() const { return impl_->geometry(); }
const PagedShape& PagedRuntime::shape() const { return impl_->shape(); }
void PagedRuntime::append(int layer, ConstTensorView k, ConstTensorView v,
                          std::span<const int64_t> slot_mapping, StreamView stream) {
  impl_->append(layer, k, v, slot_mapping, stream);
}
void PagedRuntime::attend(int layer, ConstTensorView q, const BlockTable& block_table,
                          std::span<const int32_t> seq_lens, TensorView out, float* lse,
                          StreamView stream) {
  impl_->attend(layer, q, block_table, seq_lens, out, lse, stream);
}
void PagedRuntime::prefill(int layer, ConstTensorView q, const BlockTable& block_table,
                           std::span<const int32_t> seq_lens, std::span<const int32_t> query_lens,
                           TensorView out, float* lse, StreamView stream) {
  impl_->prefill(layer, q, block_table, seq_lens, query_lens, out, lse, stream);
}
void PagedRuntime::read(int64_t page, int layer, int first, TensorView k, TensorView v,
                        StreamView stream) {
  impl_->read(page, layer, first, k, v, stream);
}
void PagedRuntime::copy_pages(std::span<const PageCopy> copies) { impl_->copy_pages(copies); }
void PagedRuntime::drop_pages(std::span<const int64_t> pages) { impl_->drop_pages(pages); }
int PagedRuntime::held(int64_t page, int layer) const { return impl_->held(page, layer); }
KvMemory PagedRuntime::memory() const { return impl_->memory(); }
FetchMetrics PagedRuntime::metrics() { return impl_->metrics(); }
void PagedRuntime::reset_metrics() { impl_->reset_metrics(); }

}  // namespace fasa
