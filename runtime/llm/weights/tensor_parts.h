// The tensors that form one quantised matrix; they share a name stem.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>

#include "runtime/llm/weights/raw_tensor.h"
#include "runtime/llm/weights/safetensors.h"
#include "runtime/llm/weights/weight_source.h"

namespace fasa {

// Reads tensors named `stem` + suffix. -1 in a shape matches any length. Throws InputError naming
// file and tensor.
class TensorParts {
 public:
  TensorParts(const WeightFiles& files, std::string stem) : files_(files), stem_(std::move(stem)) {}

  const std::string& stem() const { return stem_; }
  bool has(std::string_view suffix) const { return files_.has(stem_ + std::string(suffix)); }
  // `dtypes`: "I32" or several, "F16 BF16 F32".
  RawTensor raw(std::string_view suffix, std::string_view dtypes,
                std::initializer_list<int64_t> shape) const;
  RawTensor any(std::string_view suffix, std::string_view dtypes) const;  // of any shape
  // Numbers in F32, F16 or BF16.
  WeightView numbers(std::string_view suffix, std::initializer_list<int64_t> shape) const;
  // Throws if `groups` groups of `group` inputs do not cover `inputs`.
  void check_groups(std::string_view suffix, int64_t inputs, int64_t groups, int64_t group) const;
  [[noreturn]] void fail(std::string_view suffix, std::string_view what) const;
  // "FILE: tensor NAME", for messages.
  std::string describe(std::string_view suffix) const;

 private:
  const WeightFiles& files_;
  std::string stem_;
};

// How the layouts that the product reads become matrices. `outputs` x `inputs` follow from the
// tensors. All point into the files.
// `group`: inputs on one scale, 0 = all of a row.
std::unique_ptr<PackedTensor> read_awq(const TensorParts& parts, int64_t group);
enum class GptqVersion : uint8_t { kV1, kV2 };
std::unique_ptr<PackedTensor> read_gptq(const TensorParts& parts, GptqVersion version,
                                        int64_t group);
struct PackQuantized {
  int bits = 4;
  bool symmetric = true;
  int64_t group = 0;
};
std::unique_ptr<PackedTensor> read_pack_quantized(const TensorParts& parts,
                                                  const PackQuantized& scheme);
std::unique_ptr<PackedTensor> read_bitsandbytes(const TensorParts& parts);
// blocks u8 [.., N, K/32, 16] or [N, K/2], scales u8 [.., N, K/32]; experts' rows follow one
// another.
struct Mxfp4Names {
  std::string_view blocks;
  std::string_view scales;
};
std::unique_ptr<PackedTensor> read_mxfp4(const TensorParts& parts, const Mxfp4Names& names);
struct Fp8Layout {
  std::array<int64_t, 2> block = {128, 128};  // outputs and inputs on one scale, if by blocks
  bool stacked = false;                       // [experts, N, K]
  std::string_view weights = ".weight";
  std::string_view scale_inv = ".weight_scale_inv";
  std::string_view scale = ".weight_scale";
};
std::unique_ptr<PackedTensor> read_fp8(const TensorParts& parts, const Fp8Layout& layout);

}  // namespace fasa
