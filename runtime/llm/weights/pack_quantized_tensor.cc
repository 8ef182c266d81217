// compressed-tensors' "pack-quantized": weight_packed i32 [N, K * bits / 32], codes with an offset
// that makes them unsigned; weight_scale [N, groups]; weight_shape i64 [2]; with zeros
// weight_zero_point i32 [N * bits / 32, groups], packed along outputs; with activation order
// weight_g_idx i32 [K].
#include <fmt/format.h>

#include <cstring>

#include "runtime/base/error.h"
#include "runtime/llm/weights/group_tensor.h"
#include "runtime/llm/weights/tensor_parts.h"

namespace fasa {
namespace {

struct PackedParts {
  RawTensor weights;
  RawTensor zeros;  // without data: symmetric
  WeightView scales;
  int bits;
  int64_t group;  // 0 = the whole row
};

class PackQuantizedTensor final : public PackedTensor {
 public:
  PackQuantizedTensor(int64_t outputs, int64_t inputs, const PackedParts& parts,
                      std::span<const int32_t> groups)
      : PackedTensor(outputs, inputs), parts_(parts), per_word_(32 / parts.bits) {
    set_format(integer_format(parts.bits, parts.scales.dtype, parts.zeros.data != nullptr));
    groups_ = parts.scales.shape.size() == 2 ? parts.scales.shape[1] : 1;
    if (groups.empty()) {
      set_groups(parts.group == 0 ? inputs : parts.group);
    } else {
      set_groups(groups, groups_);
    }
  }

  void read(int64_t first, int64_t count, CodeRows* out) const override {
    const int64_t words = parts_.weights.shape[1];
    const bool per_row = parts_.scales.shape[0] == outputs();
    for (int64_t i = 0; i < count; ++i) {
      const int64_t output = first + i;
      for (int64_t place = 0; place < places(); ++place) {
        const int64_t input = input_of(place);
        if (input < 0) continue;
        const uint32_t word = parts_.weights.word(output * words + input / per_word_);
        out->codes(i)[place] = static_cast<uint8_t>(code_in(word, parts_.bits, input % per_word_));
      }
      parts_.scales.read(per_row ? output * groups_ : 0, groups_, out->scales(i));
      if (parts_.zeros.data == nullptr) continue;
      for (int64_t group = 0; group < groups_; ++group) {
        const uint32_t word = parts_.zeros.word(output / per_word_ * groups_ + group);
        const auto zero = static_cast<int>(code_in(word, parts_.bits, output % per_word_));
        out->offsets(i)[group] = static_cast<float>(zero - format().centre);
      }
    }
  }

 private:
  PackedParts parts_;
  int64_t per_word_;
  int64_t groups_ = 1;
};

int64_t long_at(const RawTensor& tensor, int64_t index) {
  int64_t value = 0;
  std::memcpy(&value, tensor.data + index * 8, sizeof(value));
  return value;
}

// Empty if inputs are in order: the tensor is missing or holds only -1.
std::vector<int32_t> order_of(const TensorParts& parts, int64_t inputs, int64_t groups) {
  if (!parts.has(".weight_g_idx")) return {};
  const RawTensor index = parts.raw(".weight_g_idx", "I32", {inputs});
  std::vector<int32_t> of(static_cast<size_t>(inputs));
  int64_t unset = 0;
  for (int64_t i = 0; i < inputs; ++i) {
    of[static_cast<size_t>(i)] = static_cast<int32_t>(index.word(i));
    unset += of[static_cast<size_t>(i)] == -1 ? 1 : 0;
  }
  if (unset == inputs) return {};
  for (int64_t i = 0; i < inputs; ++i) {
    const int32_t group = of[static_cast<size_t>(i)];
    if (group < 0 || group >= groups) {
      parts.fail(".weight_g_idx",
                 fmt::format("assigns input {} to group {}; allowed: groups 0 to {}", i, group,
                             groups - 1));
    }
  }
  return of;
}

}  // namespace

std::unique_ptr<PackedTensor> read_pack_quantized(const TensorParts& parts,
                                                  const PackQuantized& scheme) {
  const RawTensor packed = parts.raw(".weight_packed", "I32", {-1, -1});
  const RawTensor shape = parts.raw(".weight_shape", "I64", {2});
  const int64_t outputs = long_at(shape, 0);
  const int64_t inputs = long_at(shape, 1);
  const int64_t per_word = 32 / scheme.bits;
  // The size of the packed tensor bounds the stated shape.
  if (outputs < 1 || inputs < 1 || outputs != packed.shape[0] ||
      inputs > packed.shape[1] * per_word || inputs <= (packed.shape[1] - 1) * per_word) {
    parts.fail(".weight_shape",
               fmt::format("is [{}, {}], but weight_packed has [{}, {}] words of {} codes", outputs,
                           inputs, packed.shape[0], packed.shape[1], per_word));
  }
  const RawTensor all_scales = parts.raw(".weight_scale", "F32 F16 BF16", {-1, -1});
  const int64_t groups = all_scales.shape[1];
  const int64_t rows = all_scales.shape[0];
  if (groups < 1 || groups > inputs || (rows != outputs && (rows != 1 || groups != 1))) {
    parts.fail(".weight_scale", fmt::format("has shape [{}, {}] for a matrix of [{}, {}]", rows,
                                            groups, outputs, inputs));
  }
  parts.check_groups(".weight_scale", inputs, groups, scheme.group);
  PackedParts all{
      packed, {}, parts.numbers(".weight_scale", {rows, groups}), scheme.bits, scheme.group};
  if (!scheme.symmetric) {
    const int64_t words = (outputs + per_word - 1) / per_word;
    all.zeros = parts.raw(".weight_zero_point", "I32", {words, groups});
  }
  return std::make_unique<PackQuantizedTensor>(outputs, inputs, all,
                                               order_of(parts, inputs, groups));
}

}  // namespace fasa
