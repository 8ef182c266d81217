// Reads keys of one sequence, layer and KV head as f32, if rows and host memory are one tier (the
// cpu device).
#pragma once

#include <vector>

#include "kernels/host_rows.h"
#include "kernels/params.h"

namespace fasa {

// Not thread-safe.
class KeyReader {
 public:
  KeyReader(const StepParams& step, const SequenceDesc& sequence, int kv_head);

  int dim() const { return dim_; }
  // [dim], valid until the next call.
  const float* at(int position);
  // Converts positions [0, end) to f32 once, for callers that read each of them often.
  void keep(int end);

 private:
  const std::byte* row(int position) const;

  const SequenceDesc& sequence_;
  const CacheLayout layout_;
  int64_t offset_;  // of slot 0 in a row block
  int dim_;
  ExpandRow expand_;
  std::vector<float> key_;
  std::vector<float> kept_;
  int kept_end_ = 0;
};

}  // namespace fasa
