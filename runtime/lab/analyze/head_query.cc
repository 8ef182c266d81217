#include "runtime/lab/analyze/head_query.h"

#include <algorithm>
#include <cmath>

namespace fasa {

TokenSet best_tokens(std::span<const float> scores, int64_t k) {
  const cpu::RankBodies& bodies = cpu::rank_bodies(cpu::active_target());
  const int64_t tokens = std::ssize(scores);
  const float best = bodies.best(scores.data(), tokens);
  std::vector<int32_t> deficits(scores.size());
  bodies.fold(scores.data(), tokens, &best, 1, tokens, deficits.data());
  TopKSelector selector;
  selector.select(deficits, k);
  TokenSet set(scores.size());
  selector.mark(set);
  return set;
}

int64_t common(const TokenSet& a, const TokenSet& b) {
  int64_t both = 0;
  for (size_t i = 0; i < a.size(); ++i) both += a[i] & b[i];
  return both;
}

void HeadQuery::add(int chunk, std::vector<float>& row) const {
  const Geometry::Pair dims = samples_.chunks[static_cast<size_t>(chunk)];
  const float* query = samples_.query(query_, head_);
  const float a = query[dims.first];
  const float b = dims.single() ? 0.0f : query[dims.second];
  const int64_t first = samples_.visible_first(query_);
  const float* keys_a = samples_.key_plane(dims.first) + first;
  const float* keys_b = samples_.key_plane(dims.second) + first;
  for (size_t t = 0; t < row.size(); ++t) row[t] += a * keys_a[t] + b * keys_b[t];
}

// The ALiBi bias of each token; zeros without ALiBi.
std::vector<float> HeadQuery::empty_row() const {
  std::vector<float> row(static_cast<size_t>(tokens()));
  if (samples_.slopes.empty()) return row;
  const float slope = samples_.slopes[static_cast<size_t>(head_)];
  for (size_t t = 0; t < row.size(); ++t) {
    row[t] = slope * (static_cast<float>(t + 1) - static_cast<float>(row.size()));
  }
  return row;
}

std::vector<float> HeadQuery::scores() const {
  std::vector<float> row = empty_row();
  for (int chunk = 0; chunk < static_cast<int>(samples_.chunks.size()); ++chunk) add(chunk, row);
  return row;
}

std::vector<float> HeadQuery::scores(std::span<const int> chunks) const {
  std::vector<float> row = empty_row();
  for (const int chunk : chunks) add(chunk, row);
  return row;
}

std::vector<float> HeadQuery::weights() const {
  std::vector<float> row = scores();
  if (samples_.score_cap > 0) {
    cpu::rank_bodies(cpu::active_target())
        .soft_cap(row.data(), std::ssize(row), samples_.score_cap, row.data());
  }
  const float top = *std::max_element(row.begin(), row.end());
  double sum = 0;
  for (float& value : row) {
    value = std::exp(samples_.scale * (value - top));
    sum += double{value};
  }
  for (float& value : row) value = static_cast<float>(double{value} / sum);
  return row;
}

}  // namespace fasa
