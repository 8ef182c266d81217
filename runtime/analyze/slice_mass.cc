#include "runtime/analyze/slice_mass.h"

#include <algorithm>
#include <cstddef>
#include <set>

#include "runtime/calibrate_query.h"
#include "runtime/calibrate_slices.h"
#include "runtime/fc_map.h"

namespace fasa {

std::vector<SliceChoiceMass> slice_choices(int chunks, size_t kinds) {
  std::set<int> counts;
  for (const int eighths : {1, 2, 4, 6, 8}) counts.insert(std::max(1, chunks * eighths / 8));
  std::vector<SliceChoiceMass> choices;
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

void add_slice_mass(const HeadSamples& samples, std::span<const std::vector<size_t>> queries,
                    std::span<const int> ranked, int window, std::vector<SliceChoiceMass>& sums) {
  QueryScratch scratch;
  const SelectionRule rule{.window = window};
  for (SliceChoiceMass& choice : sums) {
    HeadRanking ranking;
    for (const int chunk : ranked) {
      const Geometry::Pair pair = samples.chunks[static_cast<size_t>(chunk)];
      ranking.chunks.push_back({pair.first});
      if (!pair.single()) ranking.chunks.back().push_back(pair.second);
    }
    std::vector<int16_t> dims = ranking.dims();
    dims.resize(static_cast<size_t>(2 * choice.chunks));
    const HeadSamples slice = coded_samples(samples, choice.dtype, dims);
    for (size_t kind = 0; kind < queries.size(); ++kind) {
      for (const size_t query : queries[kind]) {
        const CalibrationQuery truth(samples, query, rule, scratch);
        const CalibrationQuery guess(slice, query, rule, scratch);
        ScoreRows rows;
        for (int c = 0; c < static_cast<int>(samples.chunks.size()); ++c) guess.add_chunk(c, rows);
        choice.captured[kind] += truth.captured_far(rows, -1, scratch);
        choice.oracle[kind] += truth.oracle_far();
      }
    }
  }
}

}  // namespace fasa
