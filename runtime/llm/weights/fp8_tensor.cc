// Float8 (e4m3): weight F8_E4M3 [N, K] with scales in weight_scale_inv or weight_scale, both of
// them factors: of the tensor [] or [1], of each output [N] or [N, 1], or of blocks, [N / rows,
// K / inputs] rounded up.
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
  int64_t rows_each = 1;  // outputs on one row of scales
  int64_t groups = 1;     // in a row
  int64_t group = 0;      // inputs on one scale; 0: the whole row

  bool is_power() const { return tensor.dtype == "F8_E8M0"; }
  DType dtype() const {
    if (tensor.dtype == "F32") return DType::kF32;
    return tensor.dtype == "F16" ? DType::kF16 : DType::kBF16;  // which holds powers of two
  }
  float at(int64_t index) const {
    if (is_power()) return std::ldexp(1.0f, tensor.byte(index) - 127);
    return load_element(dtype(), tensor.data, index);
  }
};

class Fp8Tensor final : public PackedTensor {
 public:
  Fp8Tensor(const RawTensor& weights, const Fp8Scales& scales, std::string name)
      : PackedTensor(weights.shape[0], weights.shape[1]),
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
      const int64_t scales = (first + i) / scales_.rows_each * scales_.groups;
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

Fp8Scales scales_of(const TensorParts& parts, const RawTensor& weights, const Fp8Blocks& blocks) {
  const char* const suffix = parts.has(".weight_scale_inv") ? ".weight_scale_inv" : ".weight_scale";
  Fp8Scales scales{.tensor = parts.any(suffix, "F32 F16 BF16 F8_E8M0")};
  const int64_t outputs = weights.shape[0];
  const int64_t inputs = weights.shape[1];
  const auto shape = scales.tensor.shape;
  const auto up = [](int64_t count, int64_t unit) { return (count + unit - 1) / unit; };
  if (scales.tensor.elements() == 1) {
    scales.rows_each = outputs;
  } else if (shape.size() == 2 && shape[0] == up(outputs, blocks.outputs) &&
             shape[1] == up(inputs, blocks.inputs)) {
    scales.rows_each = blocks.outputs;
    scales.groups = shape[1];
    scales.group = blocks.inputs;
  } else if (shape.empty() || shape[0] != outputs || scales.tensor.elements() != outputs) {
    parts.fail(
        suffix,
        fmt::format("has {} scales; allowed for a matrix of [{}, {}]: 1, {}, or [{}, {}] of "
                    "blocks of {} x {}",
                    scales.tensor.elements(), outputs, inputs, outputs, up(outputs, blocks.outputs),
                    up(inputs, blocks.inputs), blocks.outputs, blocks.inputs));
  }
  return scales;
}

}  // namespace

std::unique_ptr<PackedTensor> read_fp8(const TensorParts& parts, const Fp8Blocks& blocks) {
  const RawTensor weights = parts.raw(".weight", "F8_E4M3", {-1, -1});
  if (weights.elements() == 0) parts.fail(".weight", "is empty");
  return std::make_unique<Fp8Tensor>(weights, scales_of(parts, weights, blocks),
                                     parts.describe(".weight"));
}

}  // namespace fasa
