// Rows one value at a time, and softmax one token at a time in f64: the oracle of the kernels over
// rows.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/params.h"

namespace fasa::reference {

// 0 = no cap.
inline double soft_capped(double score, double cap) {
  return cap > 0 ? cap * std::tanh(score / cap) : score;
}

// Address of a position's row: the write-back buffer for new tokens of a prefill, the page's device
// copy, the pages copied for this call, or the row blocks.
const std::byte* find_row(const StepParams& step, int sequence, int kv_head, int position,
                          const CopiedPages& pages, bool use_write_back_buffer);

// The attention of one query head over tokens added one by one.
class RunningSoftmax {
 public:
  // `cap`: soft cap of scores before the scale, 0 = none.
  RunningSoftmax(const RowFormat& format, const ConstTensorView& q, int token, int query_head,
                 float scale, float cap);
  void load(const float* state);  // [2 + value_dim]: max, sum, values
  void store(float* state) const;
  // `bias` is added to q·k before the cap and the scale.
  void add(const std::byte* row, double bias);
  // Adds a token with this score, already scaled; its value is value_of(d).
  template <typename ValueOf>
  void add_value(double score, const ValueOf& value_of) {
    if (!raise_max(score)) return;
    const double weight = std::exp(score - max_);
    sum_ += weight;
    for (size_t d = 0; d < values_.size(); ++d) {
      values_[d] += weight * value_of(static_cast<int>(d));
    }
  }
  void write(const TensorView& out, int token, int query_head, float* lse) const;

 private:
  bool raise_max(double score);  // false: the score has weight zero

  RowFormat format_;
  std::vector<double> query_;
  double scale_;
  double cap_;
  double max_;
  double sum_ = 0;
  std::vector<double> values_;
};

}  // namespace fasa::reference
