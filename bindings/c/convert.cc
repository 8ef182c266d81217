#include "bindings/c/convert.h"

#include <fmt/format.h>

#include <cmath>
#include <optional>

#include "bindings/c/status.h"
#include "runtime/api/caller_memory.h"
#include "runtime/api/model_part.h"
#include "runtime/base/error.h"

namespace fasa::c {
namespace {

constexpr int kMaxLayers = 4096;
constexpr int kMaxHeads = 65536;

void require_dims(const fasa_tensor& tensor, int ndim, const char* name) {
  if (tensor.ndim != ndim) {
    throw UsageError(fmt::format("{} has {} dimensions; expected {}", name, tensor.ndim, ndim));
  }
  for (int i = 0; i < ndim; ++i) {
    if (tensor.shape[i] >= 0) continue;
    throw UsageError(
        fmt::format("{}.shape[{}] = {}: allowed: 0 or more", name, i, tensor.shape[i]));
  }
}

struct Strides {
  int64_t of[4];
};

Strides strides_of(const fasa_tensor& tensor, int ndim, const char* name) {
  Strides strides{};
  bool given = false;
  for (int i = 0; i < ndim; ++i) given |= tensor.strides[i] != 0;
  if (given) {
    std::copy_n(tensor.strides, ndim, strides.of);
    if (strides.of[ndim - 1] != 1) {
      throw UsageError(fmt::format("{} has stride {} in its last dimension; expected 1", name,
                                   strides.of[ndim - 1]));
    }
    return strides;
  }
  strides.of[ndim - 1] = 1;
  for (int i = ndim - 1; i > 0; --i) {
    if (__builtin_mul_overflow(strides.of[i], tensor.shape[i], &strides.of[i - 1])) {
      throw UsageError(fmt::format("{} exceeds the address space", name));
    }
  }
  return strides;
}

void require_count(const char* name, int value, int lowest, int highest) {
  if (value >= lowest && value <= highest) return;
  throw UsageError(
      fmt::format("geometry.{} = {}: allowed: {} to {}", name, value, lowest, highest));
}

Geometry geometry_of(const fasa_geometry* given) {
  const fasa_geometry from = options_of(given, "geometry");
  require_count("layers", from.layers, 1, kMaxLayers);
  require_count("kv_heads", from.kv_heads, 1, kMaxHeads);
  require_count("query_heads", from.query_heads, 1, kMaxHeads);
  Geometry geometry;
  geometry.layers = from.layers;
  geometry.kv_heads = from.kv_heads;
  geometry.query_heads = from.query_heads;
  geometry.key_dim = from.key_dim;
  geometry.value_dim = from.value_dim == 0 ? from.key_dim : from.value_dim;
  require_count("unrotated_dims", from.unrotated_dims, 0, std::max(from.key_dim, 0));
  geometry.rotary_dims = from.key_dim - from.unrotated_dims;
  geometry.rotary_layout =
      from.interleaved_rotary != 0 ? RotaryLayout::kInterleaved : RotaryLayout::kHalf;
  geometry.scale =
      from.scale == 0 ? 1.0f / std::sqrt(static_cast<float>(from.key_dim)) : from.scale;
  if (from.windows != nullptr) geometry.windows.assign(from.windows, from.windows + from.layers);
  geometry.score_cap = from.score_cap;
  geometry.validate();
  return geometry;
}

// The caller's map, or the one that the config names.
std::vector<int16_t> slice_dims_of(const fasa_options& options, const Config& config,
                                   const Geometry& geometry) {
  std::optional<FcMap> loaded;
  const FcMap* map = nullptr;
  std::string path = config.selection.map;
  if (options.fc_map != nullptr) {
    map = &options.fc_map->map;
    path = options.fc_map->path;
  } else if (!path.empty()) {
    map = &loaded.emplace(FcMap::load(path));
  }
  if (map != nullptr) map->require_fits(geometry, path);
  return configured_slice_dims(config, geometry, map);
}

}  // namespace

DType dtype_of(fasa_dtype dtype, const char* name) {
  switch (dtype) {
    case FASA_F32:
      return DType::kF32;
    case FASA_F16:
      return DType::kF16;
    case FASA_BF16:
      return DType::kBF16;
  }
  throw UsageError(fmt::format("{} = {}: allowed: FASA_F32, FASA_F16, FASA_BF16", name,
                               static_cast<int>(dtype)));
}

TensorView view_of(Device& device, const fasa_tensor* tensor, const char* name) {
  const fasa_tensor& t = required(tensor, name);
  require_dims(t, 3, name);
  const Strides strides = strides_of(t, 3, name);
  const TensorView view{t.data,     dtype_of(t.dtype, name), t.shape[0],   t.shape[1],
                        t.shape[2], strides.of[0],           strides.of[1]};
  require_reachable(device, name, view);
  return view;
}

BatchTensorView batch_view_of(Device& device, const fasa_tensor* tensor, const char* name) {
  const fasa_tensor& t = required(tensor, name);
  require_dims(t, 4, name);
  const Strides strides = strides_of(t, 4, name);
  const BatchTensorView view{
      t.data,     dtype_of(t.dtype, name), t.shape[0],    t.shape[1],   t.shape[2],
      t.shape[3], strides.of[0],           strides.of[1], strides.of[2]};
  require_reachable(device, name, t.data, static_cast<size_t>(dtype_bytes(view.dtype)));
  return view;
}

float* sums_at(Device& device, float* lse) {
  require_reachable(device, "lse", lse, sizeof(float));
  return lse;
}

StreamView stream_of(const fasa_stream* stream, const std::shared_ptr<Device>& device,
                     const Stream& own) {
  if (stream == nullptr) return own.view();
  if (stream->device == device) {
    require_alive(*device, stream->view);
    return stream->view;
  }
  throw UsageError("the stream belongs to another device; create it with the runtime's device");
}

std::shared_ptr<Device> open_shared(const Config& config) {
  return open_device(config.device_options());
}

Opening opening_of(const fasa_options* given) {
  const fasa_options options = options_of(given, "options");
  const Geometry whole = geometry_of(options.geometry);
  Opening opening;
  if (options.config != nullptr) opening.config = options.config->config;
  ModelPart part = part_of_model(
      opening.config, whole, slice_dims_of(options, opening.config, whole),
      {options.first_layer, options.layer_count}, {options.first_kv_head, options.kv_head_count});
  opening.config = std::move(part.config);
  opening.geometry = std::move(part.geometry);
  opening.slice_dims = std::move(part.slice_dims);
  opening.row_dtype =
      opening.config.placement.row_dtype.value_or(dtype_of(options.row_dtype, "row_dtype"));
  if (options.max_context < 0) {
    throw UsageError(
        fmt::format("max_context = {}: allowed: 0 (unknown) or a positive number of tokens",
                    options.max_context));
  }
  opening.max_context = options.max_context;
  opening.device = options.device != nullptr ? options.device->device : open_shared(opening.config);
  return opening;
}

void give_memory(const KvMemory& memory, fasa_kv_memory* result) {
  fasa_kv_memory values = FASA_KV_MEMORY_INIT;
  values.device_slices = memory.device_slices;
  values.device_rows = memory.device_rows;
  values.device_hot_rows = memory.device_hot_rows;
  values.device_scratch = memory.device_scratch;
  values.host_rows = memory.host_rows;
  values.host_tables = memory.host_tables;
  values.device_extra = memory.device_extra;
  values.device_states = memory.device_states;
  values.host_states = memory.host_states;
  give(values, result, "memory");
}

void give_metrics(const FetchMetrics& metrics, int layer, fasa_metrics* result) {
  const auto layers = static_cast<int>(metrics.layers.size());
  if (layer < -1 || layer >= layers) {
    throw UsageError(
        fmt::format("metrics of layer {}; allowed: 0 to {}, or -1 for all", layer, layers - 1));
  }
  const auto at = static_cast<size_t>(layer);
  const StepCounters& rows = layer < 0 ? metrics.rows : metrics.layers[at];
  const FetchBytes& bytes = layer < 0 ? metrics.bytes : metrics.layer_bytes[at];
  fasa_metrics values = FASA_METRICS_INIT;
  values.decode_steps = metrics.decode_steps;
  values.protected_rows = rows.protected_rows;
  values.hits = rows.hits;
  values.misses = rows.misses;
  values.prefetched = rows.prefetched;
  values.prefetched_used = rows.prefetched_used;
  values.nan_scores = rows.nan_scores;
  values.miss_bytes = bytes.miss;
  values.prefetch_bytes = bytes.prefetch;
  values.write_back_bytes = bytes.write_back;
  give(values, result, "metrics");
}

}  // namespace fasa::c
