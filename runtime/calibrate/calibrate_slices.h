// Chooses the precision and number of FCs of a slice of a given size, by the distant attention that
// selections over the coded keys keep.
#pragma once

#include <span>
#include <vector>

#include "kernels/slice_format.h"
#include "runtime/calibrate/calibrate_query.h"
#include "runtime/calibrate/calibrate_samples.h"
#include "runtime/calibrate/fc_map.h"

namespace fasa {

// Bytes of a slice per token and KV head, quantisation parameters included.
double slice_bytes_per_token(SliceDType dtype, int chunks, int fine_chunks = 0);

// The samples with keys as a slice over `dims` stores them. As in the runtime, only full pages are
// coded. Dimensions outside the slice are zero.
// `fine_chunks`: of the first FCs, in int4.
HeadSamples coded_samples(const HeadSamples& samples, SliceDType dtype,
                          std::span<const int16_t> dims, int fine_chunks = 0);

// Call add() for each head. Each dtype uses as many of the head's first FCs as fit; int2 also with
// parts of its FCs in int4.
class SliceSearch {
 public:
  struct Option {
    SliceDType dtype;
    int chunks;
    int fine_chunks = 0;
    double kept = 0;  // distant attention, sum over heads
  };

  // `chunks`: FCs per head. Throws UsageError if not even one FC fits into `bytes`.
  SliceSearch(int bytes, int chunks);
  // Parallel over options; the sums do not depend on the number of threads.
  void add(const HeadSamples& samples, const HeadRanking& ranking, const SelectionRule& rule);

  const std::vector<Option>& options() const { return options_; }
  double oracle() const { return oracle_; }  // distant attention kept by the true scores
  MapSlice best() const;

 private:
  int bytes_;
  std::vector<Option> options_;
  double oracle_ = 0;
};

}  // namespace fasa
