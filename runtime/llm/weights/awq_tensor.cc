// AWQ's "gemm": qweight i32 [K, N/8], qzeros i32 [groups, N/8], scales [groups, N]; eight outputs
// per word, interleaved (kNibble).
#include <fmt/format.h>

#include "runtime/base/error.h"
#include "runtime/llm/weights/group_tensor.h"
#include "runtime/llm/weights/tensor_parts.h"

namespace fasa {
namespace {

constexpr int64_t kWord = 8;
// Nibble of each of a word's eight outputs; nibbles hold the outputs 0, 2, 4, 6, 1, 3, 5, 7.
constexpr int64_t kNibble[kWord] = {0, 4, 1, 5, 2, 6, 3, 7};

class AwqTensor final : public PackedTensor {
 public:
  AwqTensor(int64_t outputs, int64_t inputs, int64_t group, const RawTensor& weights,
            const RawTensor& zeros, const WeightView& scales)
      : PackedTensor(outputs, inputs), weights_(weights), zeros_(zeros), scales_(scales) {
    set_format(integer_format(4, scales.dtype, true));
    set_groups(group == 0 ? inputs : group);
  }

  void read(int64_t first, int64_t count, CodeRows* out) const override {
    for (int64_t place = 0; place < places(); ++place) {
      const int64_t input = input_of(place);
      if (input < 0) continue;
      for (int64_t i = 0; i < count; ++i) {
        out->codes(i)[place] = static_cast<uint8_t>(code(weights_, input, first + i));
      }
    }
    for (int64_t group = 0; group < zeros_.shape[0]; ++group) {
      for (int64_t i = 0; i < count; ++i) {
        scales_.read(group * outputs() + first + i, 1, out->scales(i) + group);
        out->offsets(i)[group] =
            static_cast<float>(code(zeros_, group, first + i)) - static_cast<float>(kWord);
      }
    }
  }

 private:
  uint32_t code(const RawTensor& tensor, int64_t row, int64_t output) const {
    const uint32_t word = tensor.word(row * (outputs() / kWord) + output / kWord);
    return code_in(word, 4, kNibble[output % kWord]);
  }

  RawTensor weights_;
  RawTensor zeros_;
  WeightView scales_;
};

}  // namespace

std::unique_ptr<PackedTensor> read_awq(const TensorParts& parts, int64_t group) {
  const RawTensor weights = parts.raw(".qweight", "I32", {-1, -1});
  const int64_t inputs = weights.shape[0];
  const int64_t words = weights.shape[1];
  const RawTensor zeros = parts.raw(".qzeros", "I32", {-1, words});
  const int64_t groups = zeros.shape[0];
  if (inputs < 1 || words < 1) parts.fail(".qweight", "is empty");
  parts.check_groups(".qzeros", inputs, groups, group);
  return std::make_unique<AwqTensor>(words * kWord, inputs, group, weights, zeros,
                                     parts.numbers(".scales", {groups, words * kWord}));
}

}  // namespace fasa
