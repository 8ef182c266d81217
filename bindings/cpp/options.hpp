/// \file
/// Options that every API takes when it is opened.
#ifndef FASA_OPTIONS_HPP
#define FASA_OPTIONS_HPP

#include <fasa/device.hpp>
#include <fasa/tensors.hpp>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace fasa {
inline namespace v0 {

/// The shape of a model's attention; zeros mean what they mean in fasa_geometry.
struct Geometry {
  int layers = 0;
  int kv_heads = 0;
  int query_heads = 0;
  int key_dim = 0;
  int value_dim = 0;
  int unrotated_dims = 0;
  bool interleaved_rotary = false;
  float scale = 0;
  std::vector<int32_t> windows = {};  ///< [layers] tokens; empty: none anywhere
  float score_cap = 0;                ///< a scaled score s becomes cap * tanh(s / cap); 0: none
};

/// Options that every API takes when it is opened. Pointers are not owned; null means what it means
/// in fasa_options.
struct Options {
  Geometry geometry;
  const Config* config = nullptr;
  Device* device = nullptr;
  const FcMap* fc_map = nullptr;
  DType row_dtype = DType::kBf16;
  int first_kv_head = 0;  ///< a tensor-parallel rank's share; count 0: all from the first
  int kv_head_count = 0;
  int64_t max_context = 0;
  int first_layer = 0;  ///< a pipeline stage's share; count 0: all from the first
  int layer_count = 0;
};

namespace detail {
/// The C struct of an Options object, which must outlive it.
class COptions {
 public:
  explicit COptions(const Options& from) {
    const Geometry& shape = from.geometry;
    if (!shape.windows.empty() && shape.windows.size() != static_cast<std::size_t>(shape.layers)) {
      throw UsageError(FASA_ERROR_USAGE,
                       "windows: wrong number of values; allowed: one per layer, or none");
    }
    geometry_.layers = shape.layers;
    geometry_.kv_heads = shape.kv_heads;
    geometry_.query_heads = shape.query_heads;
    geometry_.key_dim = shape.key_dim;
    geometry_.value_dim = shape.value_dim;
    geometry_.unrotated_dims = shape.unrotated_dims;
    geometry_.interleaved_rotary = shape.interleaved_rotary ? 1 : 0;
    geometry_.scale = shape.scale;
    geometry_.score_cap = shape.score_cap;
    geometry_.windows = shape.windows.empty() ? nullptr : shape.windows.data();
    options_.geometry = &geometry_;
    options_.config = from.config == nullptr ? nullptr : from.config->c();
    options_.device = from.device == nullptr ? nullptr : from.device->c();
    options_.fc_map = from.fc_map == nullptr ? nullptr : from.fc_map->c();
    options_.row_dtype = static_cast<fasa_dtype>(from.row_dtype);
    options_.first_kv_head = from.first_kv_head;
    options_.kv_head_count = from.kv_head_count;
    options_.max_context = from.max_context;
    options_.first_layer = from.first_layer;
    options_.layer_count = from.layer_count;
  }
  COptions(const COptions&) = delete;  // one member points to another
  COptions& operator=(const COptions&) = delete;
  const fasa_options* get() const { return &options_; }

 private:
  fasa_geometry geometry_ = FASA_GEOMETRY_INIT;
  fasa_options options_ = FASA_OPTIONS_INIT;
};

inline fasa_stream* c_stream(Stream* stream) { return stream == nullptr ? nullptr : stream->c(); }
}  // namespace detail

}  // namespace v0
}  // namespace fasa

#endif  // FASA_OPTIONS_HPP
