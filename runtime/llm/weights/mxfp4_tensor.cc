// MXFP4: blocks of 32 inputs, u8 [.., N, K/32, 16] or [N, K/2], low nibble first; scales u8 [.., N,
// K/32], powers of two (exponent + 127).
#include <fmt/format.h>

#include <cmath>

#include "runtime/base/error.h"
#include "runtime/llm/weights/packed_tensor.h"
#include "runtime/llm/weights/tensor_parts.h"

namespace fasa {
namespace {

constexpr int64_t kBlock = kMxfp4Block;

class Mxfp4Tensor final : public PackedTensor {
 public:
  Mxfp4Tensor(int64_t outputs, int64_t inputs, const RawTensor& blocks, const RawTensor& scales)
      : PackedTensor(outputs, inputs), blocks_(blocks), scales_(scales) {
    set_format(mxfp4_format());
  }

  void read(int64_t first, int64_t count, CodeRows* out) const override {
    const int64_t groups = inputs() / kBlock;
    for (int64_t i = 0; i < count; ++i) {
      const int64_t row = (first + i) * inputs() / 2;
      for (int64_t input = 0; input < inputs(); ++input) {
        const uint8_t pair = blocks_.byte(row + input / 2);
        out->codes(i)[input] = input % 2 == 0 ? pair & 15 : pair >> 4;
      }
      for (int64_t group = 0; group < groups; ++group) {
        const int exponent = scales_.byte((first + i) * groups + group) - kMxfp4Bias;
        out->scales(i)[group] = std::ldexp(1.0f, exponent);
      }
    }
  }

 private:
  RawTensor blocks_;
  RawTensor scales_;
};

}  // namespace

std::unique_ptr<PackedTensor> read_mxfp4(const TensorParts& parts, const Mxfp4Names& names) {
  // The product of all dimensions but the last gives the rows; experts follow one another.
  const RawTensor scales = parts.any(names.scales, "U8");
  const RawTensor blocks = parts.any(names.blocks, "U8");
  const size_t rank = scales.shape.size();
  if (rank < 2 || scales.elements() < 1) parts.fail(names.scales, "has no rows and groups");
  const int64_t groups = scales.shape[rank - 1];
  const int64_t rows = scales.elements() / groups;
  const bool flat = blocks.shape.size() == rank;  // [.., N, K/2]
  const bool fits = blocks.elements() == rows * groups * kBlock / 2 &&
                    blocks.shape.size() == (flat ? rank : rank + 1) &&
                    std::equal(scales.shape.begin(), scales.shape.end() - 1, blocks.shape.begin());
  if (!fits || (!flat && (blocks.shape[rank] != kBlock / 2 || blocks.shape[rank - 1] != groups))) {
    parts.fail(names.blocks, fmt::format("has the wrong shape; expected {} rows of {} blocks of 16 "
                                         "bytes, one block per scale in {}{}",
                                         rows, groups, parts.stem(), names.scales));
  }
  return std::make_unique<Mxfp4Tensor>(rows, groups * kBlock, blocks, scales);
}

}  // namespace fasa
