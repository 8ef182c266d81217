// Float8 (e4m3): weights F8_E4M3 [N, K] with scales, which are factors: of the tensor [] or [1], of
// each output [N] or [N, 1], or of blocks, [N / rows, K / inputs] rounded up. Stacked experts have
// one more dimension in front of both, and may have a scale for each half of their outputs (gates
// and ups).
#include <fmt/format.h>

#include <cmath>

#include "runtime/base/error.h"
#include "runtime/llm/weights/group_tensor.h"
#include "runtime/llm/weights/tensor_parts.h"

namespace fasa {
namespace {

// Scales as rows of groups.
struct Fp8Scales {
  RawTensor tensor;
  int64_t outputs = 1;    // of one of the stacked matrices
  int64_t rows = 1;       // of its scales
  int64_t rows_each = 1;  // outputs on one row of scales
  int64_t groups = 1;     // in a row
  int64_t group = 0;      // inputs on one scale; 0: the whole row

  bool is_power() const { return tensor.dtype == "F8_E8M0"; }
  DType dtype() const {
    if (tensor.dtype == "F32") return DType::kF32;
    return tensor.dtype == "F16" ? DType::kF16 : DType::kBF16;  // which holds powers of two
  }
  // The first scale of an output.
  int64_t begin(int64_t output) const {
    return (output / outputs * rows + output % outputs / rows_each) * groups;
  }
  float at(int64_t index) const {
    if (is_power()) return std::ldexp(1.0f, tensor.byte(index) - 127);
    return load_element(dtype(), tensor.data, index);
  }
};

class Fp8Tensor final : public PackedTensor {
 public:
  Fp8Tensor(const RawTensor& weights, const Fp8Scales& scales, std::string name)
      : PackedTensor(weights.elements() / weights.shape.back(), weights.shape.back()),
        weights_(weights),
        scales_(scales),
        name_(std::move(name)) {
    set_format({.bits = 8, .scale = scale_kind(scales.dtype()), .is_float = true});
    set_groups(scales.group == 0 ? inputs() : scales.group);
  }

  void read(int64_t first, int64_t count, CodeRows* out) const override {
    for (int64_t i = 0; i < count; ++i) {
      const int64_t row = (first + i) * inputs();
      for (int64_t input = 0; input < inputs(); ++input) {
        const uint8_t code = weights_.byte(row + input);
        if ((code & 0x7f) == 0x7f) {
          throw InputError(fmt::format("{}: row {}, column {} is NaN", name_, first + i, input));
        }
        out->codes(i)[input] = code;
      }
      const int64_t scales = scales_.begin(first + i);
      for (int64_t group = 0; group < scales_.groups; ++group) {
        out->scales(i)[group] = scales_.at(scales + group);
      }
    }
  }

 private:
  RawTensor weights_;
  Fp8Scales scales_;
  std::string name_;
};

Fp8Scales scales_of(const TensorParts& parts, const RawTensor& weights, const Fp8Layout& layout) {
  const std::string_view suffix = parts.has(layout.scale_inv) ? layout.scale_inv : layout.scale;
  const auto up = [](int64_t count, int64_t unit) { return (count + unit - 1) / unit; };
  const size_t rank = weights.shape.size();
  const int64_t matrices = rank == 3 ? weights.shape[0] : 1;
  const int64_t outputs = weights.shape[rank - 2];
  const int64_t inputs = weights.shape[rank - 1];
  const int64_t blocks[2] = {up(outputs, layout.block[0]), up(inputs, layout.block[1])};
  Fp8Scales scales{.tensor = parts.any(suffix, "F32 F16 BF16 F8_E8M0"), .outputs = outputs};
  const auto shape = scales.tensor.shape;
  const bool by_blocks = shape.size() == rank && shape[rank - 1] == blocks[1];
  if (by_blocks) scales.groups = blocks[1];
  const int64_t each = matrices * scales.groups;  // scales on a row of each matrix
  scales.rows = scales.tensor.elements() / each;
  const bool fits = scales.rows * each == scales.tensor.elements() &&
                    (rank == 2 || (!shape.empty() && shape[0] == matrices));
  if (fits && by_blocks && scales.rows == blocks[0]) {
    scales.rows_each = layout.block[0];
    scales.group = layout.block[1];
  } else if (fits &&
             (scales.rows == outputs || scales.rows == 1 ||
              (rank == 3 && scales.rows == 2 && outputs % 2 == 0)) &&
             (scales.groups == 1 || scales.rows == 2)) {
    scales.rows_each = outputs / scales.rows;
    scales.group = scales.groups == 1 ? 0 : layout.block[1];
  } else {
    parts.fail(suffix,
               fmt::format("has {} scales; allowed for {} of [{}, {}]: 1, {}, or [{}, {}] "
                           "of blocks of {} x {}{}",
                           scales.tensor.elements(),
                           rank == 3 ? fmt::format("each of {} matrices", matrices) : "a matrix",
                           outputs, inputs, outputs, blocks[0], blocks[1], layout.block[0],
                           layout.block[1], rank == 3 ? ", or one for each half" : ""));
  }
  return scales;
}

}  // namespace

std::unique_ptr<PackedTensor> read_fp8(const TensorParts& parts, const Fp8Layout& layout) {
  const RawTensor weights = parts.any(layout.weights, "F8_E4M3");
  if (weights.elements() == 0) parts.fail(layout.weights, "is empty");
  const size_t rank = layout.stacked ? 3 : 2;
  if (weights.shape.size() != rank) {
    parts.fail(layout.weights,
               fmt::format("has {} dimensions; allowed: {}", weights.shape.size(), rank));
  }
  return std::make_unique<Fp8Tensor>(weights, scales_of(parts, weights, layout),
                                     parts.describe(layout.weights));
}

}  // namespace fasa
