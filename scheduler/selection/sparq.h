// The selection of SparQ attention (arXiv 2312.04985). The r dimensions in which the query is
// largest stand for all of them. With |.| the sum of absolute values, approximate weights are
//     softmax(scale · q_r·k_r · sqrt(|q| / |q_r|)),
// and the tokens with the most weight are selected. As in the paper, a GQA group of query heads
// shares its dimensions (by the sum of |q| over the group) and sums its weights; r is half of the
// dimensions. The paper's compensation by the mean value is left out, because every selection here
// attends only to its tokens.
#pragma once

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "scheduler/selection/key_reader.h"
#include "scheduler/selection/token_selection.h"
#include "scheduler/selection/vector_math.h"

namespace fasa {

class SparqSelection : public ScoredSelection {
 protected:
  TokenScores score(const HeadStep& step) const override {
    TokenScores scores(step.query_heads, step.plan.visible(), HeadRule::kSum);
    const std::vector<int> dims = largest_dims(step, std::max(1, step.key_dim() / 2));
    KeyReader keys(step.params.step, step.tokens(), step.kv_head);
    for (int t = 0; t < scores.tokens; ++t) {
      const float* key = keys.at(step.plan.first + t);
      for (int h = 0; h < step.query_heads; ++h) {
        float sum = 0;
        for (const int d : dims) sum += step.query(h)[d] * key[d];
        scores.head(h)[static_cast<size_t>(t)] = finite_score(sum);
      }
    }
    for (int h = 0; h < step.query_heads; ++h) {
      softmax(scores.head(h), step.scale * temperature(step.query(h), step.key_dim(), dims));
    }
    return scores;
  }

 private:
  static std::vector<int> largest_dims(const HeadStep& step, int count) {
    std::vector<float> size(static_cast<size_t>(step.key_dim()));
    for (int h = 0; h < step.query_heads; ++h) {
      for (size_t d = 0; d < size.size(); ++d) size[d] += std::abs(step.query(h)[d]);
    }
    std::vector<int> dims(size.size());
    std::iota(dims.begin(), dims.end(), 0);
    std::stable_sort(dims.begin(), dims.end(), [&](int a, int b) {
      return size[static_cast<size_t>(a)] > size[static_cast<size_t>(b)];
    });
    dims.resize(static_cast<size_t>(count));
    std::sort(dims.begin(), dims.end());
    return dims;
  }

  static float temperature(const float* query, int key_dim, const std::vector<int>& dims) {
    float all = 0;
    float part = 0;
    for (int d = 0; d < key_dim; ++d) all += std::abs(query[d]);
    for (const int d : dims) part += std::abs(query[d]);
    return part > 0 ? std::sqrt(all / part) : 1.0f;
  }
};

}  // namespace fasa
