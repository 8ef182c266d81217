#include "runtime/lab/analyze/slice_attention.h"

#include <algorithm>
#include <cstddef>
#include <set>

#include "runtime/calibrate/calibrate_query.h"
#include "runtime/calibrate/calibrate_slices.h"
#include "runtime/calibrate/fc_map.h"
#include "runtime/lab/analyze/head_query.h"

namespace fasa {

std::vector<SliceChoiceAttention> slice_choices(int chunks, size_t kinds) {
  std::set<int> counts;
  for (const int eighths : {1, 2, 4, 6, 8}) counts.insert(std::max(1, chunks * eighths / 8));
  std::vector<SliceChoiceAttention> choices;
  for (const SliceDType dtype :
       {SliceDType::kBF16, SliceDType::kInt8, SliceDType::kInt4, SliceDType::kInt2}) {
    for (const int count : counts) {
      choices.push_back({.dtype = dtype,
                         .chunks = count,
                         .bytes = slice_bytes_per_token(dtype, count),
                         .captured = std::vector<double>(kinds),
                         .oracle = std::vector<double>(kinds)});
    }
  }
  return choices;
}

namespace {

// Key dimensions in the order in which slices take them.
std::vector<int16_t> dims_of(const HeadSamples& samples, std::span<const int> ranked) {
  HeadRanking ranking;
  for (const int chunk : ranked) {
    const Geometry::Pair pair = samples.chunks[static_cast<size_t>(chunk)];
    ranking.chunks.push_back({pair.first});
    if (!pair.single()) ranking.chunks.back().push_back(pair.second);
  }
  return ranking.dims();
}

// Score rows of one query, for all heads of the group in order.
ScoreRows score_rows(const HeadSamples& samples, size_t query) {
  ScoreRows rows;
  for (int head = 0; head < samples.gqa_group; ++head) {
    const auto row = HeadQuery(samples, query, head).scores();
    const auto begin = static_cast<int64_t>(rows.size());
    rows.resize(rows.size() + static_cast<size_t>(score_stride(std::ssize(row))));
    std::copy(row.begin(), row.end(), rows.begin() + begin);
  }
  return rows;
}

}  // namespace

void add_slice_attention(const HeadSamples& samples, std::span<const std::vector<size_t>> queries,
                         std::span<const int> ranked, int window,
                         std::vector<SliceChoiceAttention>& sums) {
  const std::vector<int16_t> dims = dims_of(samples, ranked);
  std::vector<HeadSamples> slices;
  for (const SliceChoiceAttention& choice : sums) {
    slices.push_back(coded_samples(samples, choice.dtype,
                                   std::span(dims).first(static_cast<size_t>(2 * choice.chunks))));
  }
  QueryScratch scratch;
  for (size_t kind = 0; kind < queries.size(); ++kind) {
    for (const size_t query : queries[kind]) {
      const CalibrationQuery truth(samples, query, {.window = window}, scratch);
      for (size_t i = 0; i < sums.size(); ++i) {
        sums[i].captured[kind] += truth.captured_distant(score_rows(slices[i], query), -1, scratch);
        sums[i].oracle[kind] += truth.oracle_distant();
      }
    }
  }
}

}  // namespace fasa
