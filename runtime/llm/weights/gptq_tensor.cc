// GPTQ: qweight i32 [K * bits / 32, N] (inputs in a word), qzeros i32 [groups, N * bits / 32]
// (outputs in a word), scales [groups, N], g_idx i32 [K], the group of each input. Version 1 stores
// zeros minus one.
#include <fmt/format.h>

#include "runtime/base/error.h"
#include "runtime/llm/weights/group_tensor.h"
#include "runtime/llm/weights/tensor_parts.h"

namespace fasa {
namespace {

struct GptqParts {
  RawTensor weights;
  RawTensor zeros;
  WeightView scales;
  int bits;
  int stored_less;  // added to stored zeros
};

class GptqTensor final : public PackedTensor {
 public:
  GptqTensor(int64_t outputs, int64_t inputs, const GptqParts& parts,
             std::span<const int32_t> groups)
      : PackedTensor(outputs, inputs), parts_(parts), per_word_(32 / parts.bits) {
    set_format(integer_format(parts.bits, parts.scales.dtype, true));
    set_groups(groups, parts.zeros.shape[0]);
  }

  void read(int64_t first, int64_t count, CodeRows* out) const override {
    for (int64_t place = 0; place < places(); ++place) {
      const int64_t input = input_of(place);
      if (input < 0) continue;
      for (int64_t i = 0; i < count; ++i) {
        const uint32_t word = parts_.weights.word(input / per_word_ * outputs() + first + i);
        out->codes(i)[place] = static_cast<uint8_t>(code_in(word, parts_.bits, input % per_word_));
      }
    }
    const int centre = format().centre;
    const int64_t zero_words = parts_.zeros.shape[1];
    for (int64_t group = 0; group < parts_.zeros.shape[0]; ++group) {
      for (int64_t i = 0; i < count; ++i) {
        const int64_t output = first + i;
        const uint32_t word = parts_.zeros.word(group * zero_words + output / per_word_);
        const auto zero = static_cast<int>(code_in(word, parts_.bits, output % per_word_));
        parts_.scales.read(group * outputs() + output, 1, out->scales(i) + group);
        out->offsets(i)[group] = static_cast<float>(zero + parts_.stored_less - centre);
      }
    }
  }

 private:
  GptqParts parts_;
  int64_t per_word_;
};

// The group of each input: as stored, else consecutive runs of `group` inputs.
std::vector<int32_t> groups_of(const TensorParts& parts, int64_t inputs, int64_t groups,
                               int64_t group) {
  std::vector<int32_t> of(static_cast<size_t>(inputs));
  if (!parts.has(".g_idx")) {
    parts.check_groups(".qzeros", inputs, groups, group);
    for (int64_t i = 0; i < inputs; ++i) {
      of[static_cast<size_t>(i)] = group == 0 ? 0 : static_cast<int32_t>(i / group);
    }
    return of;
  }
  const RawTensor index = parts.raw(".g_idx", "I32", {inputs});
  for (int64_t i = 0; i < inputs; ++i) {
    const auto stored = static_cast<int32_t>(index.word(i));
    if (stored < 0 || stored >= groups) {
      parts.fail(".g_idx", fmt::format("assigns input {} to group {}; allowed: groups 0 to {}", i,
                                       stored, groups - 1));
    }
    of[static_cast<size_t>(i)] = stored;
  }
  return of;
}

}  // namespace

std::unique_ptr<PackedTensor> read_gptq(const TensorParts& parts, GptqVersion version,
                                        int64_t group) {
  const RawTensor weights = parts.raw(".qweight", "I32", {-1, -1});
  const int64_t outputs = weights.shape[1];
  const RawTensor zeros = parts.raw(".qzeros", "I32", {-1, -1});
  const int64_t groups = zeros.shape[0];
  if (outputs < 1 || weights.shape[0] < 1 || groups < 1 || zeros.shape[1] < 1) {
    parts.fail(".qweight", "is empty, or its zeros are");
  }
  int bits = 4;
  if (zeros.shape[1] == (outputs + 3) / 4 && zeros.shape[1] != (outputs + 7) / 8) bits = 8;
  const int64_t per_word = 32 / bits;
  if (zeros.shape[1] != (outputs + per_word - 1) / per_word) {
    parts.fail(".qzeros", fmt::format("has {} words for {} outputs; allowed: 4 or 8 bits per zero",
                                      zeros.shape[1], outputs));
  }
  const int64_t inputs = weights.shape[0] * per_word;
  if (groups > inputs) {
    parts.fail(".qzeros", fmt::format("has {} groups for {} inputs", groups, inputs));
  }
  const GptqParts all{weights, zeros, parts.numbers(".scales", {groups, outputs}), bits,
                      version == GptqVersion::kV1 ? 1 : 0};
  return std::make_unique<GptqTensor>(outputs, inputs, all,
                                      groups_of(parts, inputs, groups, group));
}

}  // namespace fasa
