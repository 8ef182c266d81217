// Storage types of tensors' elements in GGUF files.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace fasa {

// Types that are read, with the format's numbers.
enum class GgmlType : uint32_t {
  kF32 = 0,
  kF16 = 1,
  kQ40 = 2,
  kQ41 = 3,
  kQ50 = 6,
  kQ51 = 7,
  kQ80 = 8,
  kQ2K = 10,
  kQ3K = 11,
  kQ4K = 12,
  kQ5K = 13,
  kQ6K = 14,
  kIq3Xxs = 18,
  kIq4Nl = 20,
  kIq3S = 21,
  kIq4Xs = 23,
  kBF16 = 30,
  kMxfp4 = 39,
};

struct GgmlBlock {
  GgmlType type;
  std::string_view name;
  int64_t elements;  // 0: of a type that is not read
  int64_t bytes;

  bool is_read() const { return elements > 0; }
};
// Null for a type that is not read.
const GgmlBlock* find_ggml_block(uint32_t type);
// A type's name for a message: "IQ2_XXS", "IQ5_K (of ik_llama.cpp)", "400 (of another engine)".
std::string ggml_type_text(GgmlType type);
// The names of all types that are read.
std::string ggml_types_read();

}  // namespace fasa
