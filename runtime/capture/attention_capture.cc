#include "runtime/capture/attention_capture.h"

#include <algorithm>
#include <utility>

#include "runtime/base/dtype.h"
#include "runtime/base/raw_slopes.h"

namespace fasa {

AttentionCapture::AttentionCapture(const Geometry& geometry, int64_t tokens,
                                   std::vector<int32_t> positions)
    : AttentionCapture(geometry, tokens, std::move(positions), {0, geometry.layers}) {}

AttentionCapture::AttentionCapture(const Geometry& geometry, int64_t tokens,
                                   std::vector<int32_t> positions, LayerRange layers)
    : geometry_(geometry), positions_(std::move(positions)), layers_(layers) {
  const auto key_dim = static_cast<size_t>(geometry.key_dim);
  const auto group = static_cast<size_t>(geometry.gqa_group());
  const std::vector<float> slopes = raw_slopes(geometry);
  for (int layer = layers.first; layer < layers.end; ++layer) {
    for (int head = 0; head < geometry.kv_heads; ++head) {
      HeadSamples& one = samples_.emplace_back();
      one.gqa_group = geometry.gqa_group();
      one.key_dim = geometry.key_dim;
      one.window = geometry.window(layer);
      one.scale = geometry.scale;
      one.score_cap = raw_score_cap(geometry);
      one.tokens = tokens;
      one.chunks = geometry.ranked_chunks();
      if (!slopes.empty()) {
        const auto first = slopes.begin() + head * one.gqa_group;
        one.slopes.assign(first, first + one.gqa_group);
      }
      one.positions = positions_;
      // Allocates all memory now, because observers must not throw.
      one.keys.resize(key_dim * static_cast<size_t>(tokens));
      one.queries.resize(positions_.size() * group * key_dim);
    }
  }
}

void AttentionCapture::take_keys(int layer, const ConstTensorView& k, int64_t start_position) {
  for (int head = 0; head < geometry_.kv_heads; ++head) {
    HeadSamples& one = samples(layer, head);
    // Interleaves tokens by cache lines of the planes.
    constexpr int64_t kBlock = 16;
    for (int64_t begin = 0; begin < k.tokens; begin += kBlock) {
      const int64_t end = std::min(begin + kBlock, k.tokens);
      for (int dim = 0; dim < geometry_.key_dim; ++dim) {
        float* plane = one.keys.data() + dim * one.tokens + start_position;
        for (int64_t token = begin; token < end; ++token) {
          plane[token] = load_element(k.dtype, k.data, k.offset(token, head) + dim);
        }
      }
    }
  }
}

void AttentionCapture::on_layer(int layer, ConstTensorView q, ConstTensorView k, ConstTensorView,
                                int64_t start_position) {
  // Layers with heads of another shape have no slices: their samples stay zero.
  if (geometry_.has_window_heads() && geometry_.window(layer) > 0) return;
  // For all layers that attend to these keys; none if the layer shares another's.
  for (int reader = layers_.first; reader < layers_.end && k.tokens > 0; ++reader) {
    if (geometry_.kv_layer(reader) == layer) take_keys(reader, k, start_position);
  }
  if (!layers_.holds(layer)) return;
  for (int head = 0; head < geometry_.kv_heads; ++head) {
    HeadSamples& one = samples(layer, head);
    const auto first = std::lower_bound(positions_.begin(), positions_.end(), start_position);
    for (auto at = first; at != positions_.end() && *at < start_position + q.tokens; ++at) {
      for (int member = 0; member < one.gqa_group; ++member) {
        const int64_t from = q.offset(*at - start_position, head * one.gqa_group + member);
        const auto to =
            (static_cast<size_t>(at - positions_.begin()) * static_cast<size_t>(one.gqa_group) +
             static_cast<size_t>(member)) *
            static_cast<size_t>(one.key_dim);
        for (int dim = 0; dim < one.key_dim; ++dim) {
          one.queries[to + static_cast<size_t>(dim)] = load_element(q.dtype, q.data, from + dim);
        }
      }
    }
  }
}

uint64_t AttentionCapture::bytes(const Geometry& geometry, int64_t tokens, size_t positions) {
  const auto key = static_cast<uint64_t>(geometry.key_dim) * sizeof(float);
  return key * (static_cast<uint64_t>(geometry.kv_heads) * static_cast<uint64_t>(tokens) +
                static_cast<uint64_t>(geometry.query_heads) * positions);
}

HeadSamples AttentionCapture::take(int layer, int kv_head) {
  return std::move(samples(layer, kv_head));
}

}  // namespace fasa
