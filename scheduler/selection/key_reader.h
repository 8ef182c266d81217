// Keys of one sequence, layer and KV head in f32, where rows and host are one tier (the cpu
// device).
#pragma once

#include <vector>

#include "kernels/host_rows.h"
#include "kernels/params.h"

namespace fasa {

// Not for two threads at a time.
class KeyReader {
 public:
  KeyReader(const StepParams& step, const SequenceDesc& sequence, int kv_head);

  int dim() const { return dim_; }
  // [dim], until the next call.
  const float* at(int position);
  // Keeps positions [0, end) in f32: for callers that read each of them often.
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
