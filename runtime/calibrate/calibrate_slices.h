// Chooses the precision and the number of FCs of a slice of a given size, by the distant attention
// that selections over the coded keys keep.
#pragma once

#include <span>
#include <vector>

#include "kernels/slice_format.h"
#include "runtime/calibrate/calibrate_query.h"
#include "runtime/calibrate/calibrate_samples.h"
#include "runtime/calibrate/fc_map.h"

namespace fasa {

// Bytes of a slice per token and KV head, parameters included.
double slice_bytes_per_token(SliceDType dtype, int chunks);

// The same samples with the keys that a slice over `dims` holds; full pages only are coded, as in
// the runtime. Dimensions outside the slice are zero.
HeadSamples coded_samples(const HeadSamples& samples, SliceDType dtype,
                          std::span<const int16_t> dims);

// Add one head after the other; every dtype takes as many of its first FCs as fit.
class SliceSearch {
 public:
  struct Option {
    SliceDType dtype;
    int chunks;
    double kept = 0;  // distant attention over all heads added
  };

  // `chunks`: FCs per head. Throws UsageError if not even one FC fits into `bytes`.
  SliceSearch(int bytes, int chunks);
  // Parallel over options; the same sums with any number of threads.
  void add(const HeadSamples& samples, const HeadRanking& ranking, const SelectionRule& rule);

  const std::vector<Option>& options() const { return options_; }
  double oracle() const { return oracle_; }  // distant attention that the true scores keep
  MapSlice best() const;

 private:
  int bytes_;
  std::vector<Option> options_;
  double oracle_ = 0;
};

}  // namespace fasa
