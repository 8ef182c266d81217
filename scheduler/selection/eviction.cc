#include "scheduler/selection/eviction.h"

#include "scheduler/selection/vector_math.h"

namespace fasa {

void attention_weights(EvictionHead& head, const float* query, std::span<const int32_t> tokens,
                       std::span<float> weights) {
  for (size_t i = 0; i < tokens.size(); ++i) {
    weights[i] = finite_score(dot(query, head.keys.at(tokens[i]), head.keys.dim()));
  }
  softmax(weights, head.scale);
}

}  // namespace fasa
