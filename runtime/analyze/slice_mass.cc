#include "runtime/analyze/slice_mass.h"

#include <algorithm>
#include <cstddef>
#include <set>

#include "kernels/reference/slices.h"
#include "runtime/analyze/head_query.h"
#include "runtime/calibrate_query.h"

namespace fasa {

HeadSamples with_slice_keys(const HeadSamples& samples, SliceDType dtype,
                            std::span<const int16_t> dims) {
  HeadSamples result = samples;
  std::fill(result.keys.begin(), result.keys.end(), 0.0f);
  const SliceFormat format{dtype, static_cast<int>(dims.size())};
  std::vector<std::byte> tail(static_cast<size_t>(format.tail().page_bytes()));
  std::vector<std::byte> page(static_cast<size_t>(format.page_bytes()));
  std::vector<float> key(static_cast<size_t>(samples.key_dim));
  for (int64_t first = 0; first < samples.tokens; first += kPageTokens) {
    const int count = static_cast<int>(std::min<int64_t>(kPageTokens, samples.tokens - first));
    for (int slot = 0; slot < count; ++slot) {
      for (int dim = 0; dim < samples.key_dim; ++dim) {
        key[static_cast<size_t>(dim)] = samples.key_plane(dim)[first + slot];
      }
      reference::write_tail_token(format.tail(), dims.data(), DType::kF32, key.data(), slot,
                                  tail.data());
    }
    const bool sealed = count == kPageTokens;
    float base = 0;
    if (sealed) reference::seal_page(format, tail.data(), page.data(), &base);
    for (int i = 0; i < format.dims; ++i) {
      for (int slot = 0; slot < count; ++slot) {
        result.keys[static_cast<size_t>(dims[static_cast<size_t>(i)] * samples.tokens + first +
                                        slot)] =
            sealed ? reference::slice_value(format, page.data(), base, i, slot)
                   : reference::slice_value(format.tail(), tail.data(), 0, i, slot);
      }
    }
  }
  return result;
}

std::vector<SliceChoiceMass> slice_choices(int chunks, size_t kinds) {
  std::set<int> counts;
  for (const int eighths : {1, 2, 4, 6, 8}) counts.insert(std::max(1, chunks * eighths / 8));
  std::vector<SliceChoiceMass> choices;
  for (const SliceDType dtype :
       {SliceDType::kBF16, SliceDType::kInt8, SliceDType::kInt4, SliceDType::kInt2}) {
    for (const int count : counts) {
      const SliceFormat format{dtype, 2 * count};
      choices.push_back({.dtype = dtype,
                         .chunks = count,
                         .bytes = static_cast<double>(format.page_bytes()) / kPageTokens,
                         .captured = std::vector<double>(kinds),
                         .oracle = std::vector<double>(kinds)});
    }
  }
  return choices;
}

namespace {

std::vector<int16_t> dims_of(const HeadSamples& samples, std::span<const int> chunks) {
  std::vector<int16_t> dims;
  for (const int chunk : chunks) {
    const auto [a, b] = samples.chunks[static_cast<size_t>(chunk)];
    dims.push_back(static_cast<int16_t>(a));
    dims.push_back(static_cast<int16_t>(b));
  }
  return dims;
}

// Score rows of a query, all heads of the group one after the other.
ScoreRows score_rows(const HeadSamples& samples, size_t query) {
  ScoreRows rows;
  for (int head = 0; head < samples.group; ++head) {
    const auto row = HeadQuery(samples, query, head).scores();
    rows.insert(rows.end(), row.begin(), row.end());
  }
  return rows;
}

}  // namespace

void add_slice_mass(const HeadSamples& samples, std::span<const std::vector<size_t>> queries,
                    std::span<const int> ranked, int window, std::vector<SliceChoiceMass>& sums) {
  std::vector<HeadSamples> slices;
  for (const SliceChoiceMass& choice : sums) {
    slices.push_back(with_slice_keys(
        samples, choice.dtype, dims_of(samples, ranked.first(static_cast<size_t>(choice.chunks)))));
  }
  QueryScratch scratch;
  for (size_t kind = 0; kind < queries.size(); ++kind) {
    for (const size_t query : queries[kind]) {
      const CalibrationQuery truth(samples, query, {.window = window}, scratch);
      for (size_t i = 0; i < sums.size(); ++i) {
        sums[i].captured[kind] += truth.captured_far(score_rows(slices[i], query), -1, scratch);
        sums[i].oracle[kind] += truth.oracle_far();
      }
    }
  }
}

}  // namespace fasa
