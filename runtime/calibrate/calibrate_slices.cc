#include "runtime/calibrate/calibrate_slices.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>

#include "kernels/slice_pack.h"
#include "runtime/base/error.h"
#include "runtime/base/parallel.h"

namespace fasa {
namespace {

SliceFormat format_of(SliceDType dtype, int chunks, int fine_chunks) {
  return {dtype, 2 * (chunks + fine_chunks), SliceOrder::kByGroup, 2 * fine_chunks};
}

}  // namespace

double slice_bytes_per_token(SliceDType dtype, int chunks, int fine_chunks) {
  const SliceFormat format = format_of(dtype, chunks, fine_chunks);
  return static_cast<double>(format.page_bytes()) / kPageTokens;
}

HeadSamples coded_samples(const HeadSamples& samples, SliceDType dtype,
                          std::span<const int16_t> dims, int fine_chunks) {
  HeadSamples result = samples;
  std::fill(result.keys.begin(), result.keys.end(), 0.0f);
  const SliceFormat format = format_of(dtype, static_cast<int>(dims.size()) / 2, fine_chunks);
  std::vector<std::byte> tail(static_cast<size_t>(format.tail().page_bytes()));
  std::vector<std::byte> page(static_cast<size_t>(format.page_bytes()));
  std::vector<float> key(static_cast<size_t>(samples.key_dim));
  for (int64_t first = 0; first < samples.tokens; first += kPageTokens) {
    const int count = static_cast<int>(std::min<int64_t>(kPageTokens, samples.tokens - first));
    for (int slot = 0; slot < count; ++slot) {
      for (int dim = 0; dim < samples.key_dim; ++dim) {
        key[static_cast<size_t>(dim)] = samples.key_plane(dim)[first + slot];
      }
      write_tail_token(format.tail(), dims.data(), DType::kF32, key.data(), slot, tail.data());
    }
    const bool sealed = count == kPageTokens;
    float base = 0;
    if (sealed) seal_page(format, tail.data(), page.data(), &base);
    for (int i = 0; i < format.dims; ++i) {
      for (int slot = 0; slot < count; ++slot) {
        const int dim = dims[static_cast<size_t>(format.coded_dim(i))];
        result.keys[static_cast<size_t>(dim * samples.tokens + first + slot)] +=
            sealed ? slice_value(format, page.data(), base, i, slot)
                   : slice_value(format.tail(), tail.data(), 0, i, slot);
      }
    }
  }
  return result;
}

SliceSearch::SliceSearch(int bytes, int chunks) : bytes_(bytes) {
  for (size_t i = std::size(kSliceDTypes); i-- > 0;) {
    const SliceDType dtype = kSliceDTypes[i];
    int most = 0;
    while (most < chunks && slice_bytes_per_token(dtype, most + 1) <= bytes) ++most;
    if (most > 0) options_.push_back({dtype, most});
  }
  for (const int share : {8, 4, 2}) {  // of the FCs in the slice, in int4
    int most = 0;
    while (most < chunks &&
           slice_bytes_per_token(SliceDType::kInt2, most + 1, (most + 1) / share) <= bytes) {
      ++most;
    }
    if (most >= share) options_.push_back({SliceDType::kInt2, most, most / share});
  }
  if (options_.empty()) {
    throw UsageError(
        fmt::format("slice_bytes = {}: allowed: {:.0f} or more, the bytes of one frequency chunk "
                    "with its parameters",
                    bytes, std::ceil(slice_bytes_per_token(SliceDType::kInt2, 1))));
  }
}

void SliceSearch::add(const HeadSamples& samples, const HeadRanking& ranking,
                      const SelectionRule& rule) {
  QueryScratch scratch;
  for (size_t q = 0; q < samples.query_count(); ++q) {
    oracle_ += CalibrationQuery(samples, q, rule, scratch).oracle_distant();
  }
  parallel_for(size_t{0}, options_.size(), [&](size_t i) {
    Option& option = options_[i];
    const HeadSamples slice = coded_samples(
        samples, option.dtype, ranking.dims(option.chunks, option.fine_chunks), option.fine_chunks);
    QueryScratch own;
    for (size_t q = 0; q < samples.query_count(); ++q) {
      const CalibrationQuery truth(samples, q, rule, own);
      const CalibrationQuery scored(slice, q, rule, own);
      ScoreRows rows;
      for (size_t c = 0; c < samples.chunks.size(); ++c) {
        scored.add_chunk(static_cast<int>(c), rows, own);
      }
      option.kept += truth.captured_distant(rows, -1, own);
    }
  });
}

MapSlice SliceSearch::best() const {
  const auto best =
      std::max_element(options_.begin(), options_.end(),
                       [](const Option& a, const Option& b) { return a.kept < b.kept; });
  return {.dtype = best->dtype,
          .tip_chunks = best->chunks,
          .fine_chunks = best->fine_chunks,
          .bytes = bytes_};
}

}  // namespace fasa
