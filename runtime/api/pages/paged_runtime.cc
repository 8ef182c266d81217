#include "runtime/api/pages/paged_runtime.h"

#include <fmt/format.h>

#include <algorithm>

#include "runtime/api/settings.h"
#include "runtime/api/tensor_check.h"
#include "runtime/base/error.h"

namespace fasa {
namespace {

constexpr int kLargestPage = 256;

bool is_page_size(int tokens) {
  return tokens > 0 && tokens <= kLargestPage && tokens % kPageTokens == 0;
}

void check_shape(const PagedShape& shape) {
  if (!is_page_size(shape.page_size)) {
    throw UsageError(fmt::format(
        "page_size = {}: allowed: 64, 128, 192, 256; slices are sealed {} tokens at a time",
        shape.page_size, kPageTokens));
  }
  if (shape.num_pages < 1 || shape.num_pages > INT32_MAX) {
    throw UsageError(fmt::format("num_pages = {}: allowed: 1 to {}", shape.num_pages, INT32_MAX));
  }
  if (shape.max_sequences < 1) {
    throw UsageError(fmt::format("max_sequences = {}: allowed: at least 1", shape.max_sequences));
  }
  if (shape.max_steps < 1 || shape.max_steps > kMaxSteps) {
    throw UsageError(fmt::format("max_steps = {}: allowed: 1 to {}", shape.max_steps, kMaxSteps));
  }
}

}  // namespace

StepSettings paged_settings(const Config& config, const Geometry& geometry, RowDType row_dtype,
                            const DeviceTraits& traits, const PagedShape& shape) {
  check_shape(shape);
  StepSettings settings = make_paged_step_settings(config, geometry, row_dtype, traits,
                                                   shape.num_pages * shape.page_size);
  if (!geometry.alibi_slopes.empty()) {
    throw UsageError("the paged API does not support models with ALiBi; use the sequences API");
  }
  if (settings.selection != nullptr) {
    throw UsageError(
        "the paged API supports selection.kind = fasa with its default rules, and full; for other "
        "selections use the sequences API");
  }
  const bool predictions =
      config.prefetch.depth.value_or(0) > 0 || (config.prefetch.predictor != PredictorKind::kAuto &&
                                                config.prefetch.predictor != PredictorKind::kNone);
  if (predictions) {
    throw UsageError(
        "the paged API cannot prefetch, because a call sees only one layer; allowed: "
        "prefetch.depth = auto or 0, prefetch.predictor = auto or none; to prefetch use the "
        "sequences API");
  }
  if (settings.rows == RowTier::kMirrored) settings.rows = RowTier::kHost;
  settings.prefetch = {.predictor = PredictorKind::kNone, .depth = 0};
  return settings;
}

PagedRuntime::PagedRuntime(Device& device, const Config& config, const Geometry& geometry,
                           RowDType row_dtype, const std::vector<int16_t>& slice_dims,
                           const PagedShape& shape)
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

PagedRuntime::~PagedRuntime() {
  try {
    streams_.drain();
  } catch (...) {
    // Stream failures were reported by the calls that waited.
  }
}

void PagedRuntime::copy_pages(std::span<const PageCopy> copies) {
  streams_.require_usable("copy_pages", 0);
  for (const PageCopy& copy : copies) {
    store_.require_page(copy.source);
    store_.require_page(copy.destination);
    if (copy.source == copy.destination) {
      throw UsageError(
          fmt::format("copy_pages: page {} cannot be copied onto itself", copy.source));
    }
    if (!store_.same_in_all_layers(copy.source)) {
      throw UsageError(
          fmt::format("copy_pages: page {} holds more tokens in some layers than in others; call "
                      "it between steps",
                      copy.source));
    }
  }
  streams_.run([&] {
    streams_.order(streams_.latest());
    streams_.begin();
    const auto copy_block = [this](std::byte* to, const std::byte* from, int64_t bytes,
                                   CopyKind kind) {
      engine_.device().copy(to, from, static_cast<size_t>(bytes), kind, engine_.control(),
                            tag_of(-1, Cause::kControl));
    };
    const CacheLayout& layout = engine_.settings().layout;
    for (const PageCopy& copy : copies) {
      for (int part = 0; part < store_.parts(); ++part) {
        copy_block(store_.row_block(copy.destination, part), store_.row_block(copy.source, part),
                   layout.row_block_bytes(),
                   engine_.settings().access() == RowAccess::kLocal ? CopyKind::kDeviceToDevice
                                                                    : CopyKind::kHostToHost);
        if (!store_.uses_tails()) continue;
        copy_block(store_.slice_block(copy.destination, part),
                   store_.slice_block(copy.source, part), layout.slice_block_bytes(),
                   CopyKind::kDeviceToDevice);
      }
      store_.take_over(copy.source, copy.destination);
    }
    streams_.record_last(engine_.control());
  });
}

void PagedRuntime::drop_pages(std::span<const int64_t> pages) {
  for (const int64_t page : pages) store_.require_page(page);
  for (const int64_t page : pages) store_.start(page);
}

int PagedRuntime::held(int64_t page, int layer) const {
  streams_.require_usable("held", layer);
  store_.require_page(page);
  return store_.held(page, layer);
}

KvMemory PagedRuntime::memory() const {
  KvMemory memory;
  memory.rows_in(traits_of(settings_.rows).space) = store_.row_bytes();
  memory.device_slices = store_.slice_bytes();
  memory.device_scratch = engine_.bytes() + read_blocks_.device_bytes();
  memory.host_tables = read_blocks_.host_bytes();
  views_.add_memory(&memory);
  append_.add_memory(&memory);
  attend_.add_memory(&memory);
  prefill_.add_memory(&memory);
  return memory;
}

FetchMetrics PagedRuntime::metrics() {
  streams_.drain();
  return engine_.counters().read(engine_.settings().layout, engine_.control());
}

void PagedRuntime::reset_metrics() {
  streams_.drain();
  engine_.counters().reset(engine_.control());
}

void PagedRuntime::read(int64_t page, int layer, int first, TensorView k, TensorView v,
                        StreamView stream) {
  streams_.require_usable("read", layer);
  store_.require_page(page);
  require_shape("k", k, k.tokens, engine_.geometry().kv_heads, engine_.geometry().key_dim);
  require_shape("v", v, k.tokens, engine_.geometry().kv_heads, engine_.geometry().value_dim);
  const int held = store_.held(page, layer);
  if (first < 0 || k.tokens < 0 || first > held - k.tokens) {
    throw UsageError(fmt::format("read of tokens {} to {} of page {}, layer {}, which holds {}",
                                 first, first + k.tokens - 1, page, layer, held));
  }
  streams_.run([&] {
    streams_.order(streams_.latest());
    read_blocks_.truncate(0);
    views_.begin_call();
    views_.with_room([&] { read_blocks_.reserve(store_.parts()); });
    streams_.begin();
    read_blocks_.prepare_overwrite(0);
    for (int part = 0; part < store_.parts(); ++part) {
      read_blocks_.append(store_.row_block(page, part));
    }
    const OperationTag tag = tag_of(layer, Cause::kControl);
    read_blocks_.upload(engine_.control());
    engine_.record_tables();
    engine_.device().wait(stream, engine_.tables_ready(), tag);
    engine_.device().enqueue(ReadRowsParams{.layout = engine_.settings().layout,
                                            .layer = layer,
                                            .row_blocks = read_blocks_.device_data(),
                                            .first = first,
                                            .access = engine_.settings().access(),
                                            .k = k,
                                            .v = v},
                             stream, tag);
    streams_.record_last(stream);
  });
}

}  // namespace fasa
