#include "runtime/catalog/model_shape.h"

#include <algorithm>

namespace fasa {
namespace {

constexpr int64_t kScaleGroup = 64;

int64_t kv_width(const HeadShape& heads) {
  return int64_t{heads.kv_heads} * (heads.key_dim + heads.value_dim);
}

// The mean over layers.
template <typename Width>
int64_t mean_width(const Geometry& g, const Width& width) {
  int64_t sum = 0;
  for (int layer = 0; layer < g.layers; ++layer) sum += width(layer);
  return sum / g.layers;
}

}  // namespace

int64_t ModelShape::layer_parameters() const {
  const int64_t attention = mean_width(geometry, [&](int layer) {
    const HeadShape heads = geometry.heads(layer);
    return int64_t{geometry.query_heads} * (heads.key_dim + heads.value_dim) +
           (geometry.is_shared(layer) ? 0 : kv_width(heads));
  });
  return hidden * attention + 3 * hidden * intermediate;
}

int64_t ModelShape::head_parameters() const { return hidden * vocab; }

int64_t ModelShape::device_parameters() const {
  return geometry.layers * layer_parameters() + idle_parameters + head_parameters();
}

int64_t ModelShape::parameters() const {
  return device_parameters() + (tied_embeddings ? 0 : hidden * vocab) + layer_embeddings;
}

uint64_t weight_bytes(int64_t parameters, int bits) {
  const int64_t scales = bits < 16 ? parameters / kScaleGroup * 16 : 0;
  return static_cast<uint64_t>((parameters * bits + scales) / 8);
}

uint64_t activation_bytes(const ModelShape& model, int64_t tokens) {
  const Geometry& g = model.geometry;
  int64_t qkv = 0, attended = 0;
  for (int layer = 0; layer < g.layers; ++layer) {
    const HeadShape heads = g.heads(layer);
    qkv = std::max(qkv, int64_t{g.query_heads} * heads.key_dim + kv_width(heads));
    attended = std::max(attended, int64_t{g.query_heads} * heads.value_dim);
  }
  const int64_t mlp = model.mlp_width > 0 ? model.mlp_width : model.intermediate;
  if (g.linear.layers > 0) {
    qkv = std::max(qkv, int64_t{g.linear.channels()});
    attended = std::max(attended, int64_t{g.linear.value_width()});
  }
  const int64_t linear = g.linear.layers > 0 ? g.linear.channels() + g.linear.value_width() : 0;
  const int64_t widest_in = std::max({model.hidden, attended, mlp});
  const int64_t widest_out = std::max({model.hidden, qkv, 2 * mlp, linear});
  const int64_t floats = model.hidden + widest_out + g.rotary_dims;
  const int64_t halves = widest_in + qkv + attended;
  return static_cast<uint64_t>(tokens * (4 * floats + 2 * halves) + 4 * model.vocab);
}

}  // namespace fasa
