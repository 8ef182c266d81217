#include "runtime/catalog/model_shape.h"

#include <algorithm>

namespace fasa {
namespace {

constexpr int64_t kScaleGroup = 64;

int64_t query_width(const Geometry& g) { return int64_t{g.query_heads} * g.key_dim; }
int64_t kv_width(const Geometry& g) { return int64_t{g.kv_heads} * (g.key_dim + g.value_dim); }

}  // namespace

int64_t ModelShape::query_parameters() const { return hidden * query_width(geometry); }

int64_t ModelShape::layer_parameters() const {
  const int64_t output = hidden * geometry.query_heads * geometry.value_dim;
  return query_parameters() + hidden * kv_width(geometry) + output + 3 * hidden * intermediate;
}

int64_t ModelShape::head_parameters() const { return hidden * vocab; }

int64_t ModelShape::device_parameters() const {
  return geometry.layers * layer_parameters() + idle_parameters + head_parameters();
}

int64_t ModelShape::parameters() const {
  return device_parameters() + (tied_embeddings ? 0 : hidden * vocab);
}

uint64_t weight_bytes(int64_t parameters, int bits) {
  const int64_t scales = bits < 16 ? parameters / kScaleGroup * 16 : 0;
  return static_cast<uint64_t>((parameters * bits + scales) / 8);
}

uint64_t activation_bytes(const ModelShape& model, int64_t tokens) {
  const Geometry& g = model.geometry;
  const int64_t query = query_width(g);
  const int64_t qkv = query + kv_width(g);
  const int64_t attended = int64_t{g.query_heads} * g.value_dim;
  const int64_t widest_in = std::max({model.hidden, attended, model.intermediate});
  const int64_t widest_out = std::max({model.hidden, qkv, 2 * model.intermediate});
  const int64_t floats = model.hidden + widest_out + g.rotary_dims;
  const int64_t halves = widest_in + qkv + attended;
  return static_cast<uint64_t>(tokens * (4 * floats + 2 * halves) + 4 * model.vocab);
}

}  // namespace fasa
