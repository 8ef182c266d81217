// A 16-bit matrix rounded to integers while it is loaded.
#pragma once

#include "runtime/llm/weights/packed_tensor.h"
#include "runtime/llm/weights/weight_source.h"

namespace fasa {

struct Rounding {
  int bits = 8;    // 4, 8
  int group = 64;  // inputs per scale: 32, 64, 128
};

// Symmetric: value = code * scale. Each group takes the scale with the least squared error among a
// few candidates. `view` [outputs, inputs] must stay valid.
class RoundedTensor final : public PackedTensor {
 public:
  RoundedTensor(const WeightView& view, const Rounding& rounding);
  void read(int64_t first, int64_t count, CodeRows* out) const override;

 private:
  WeightView view_;
};

}  // namespace fasa
