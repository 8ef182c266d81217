#include "runtime/llm/gguf/gguf_types.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

namespace fasa {
namespace {

constexpr GgmlBlock kBlocks[] = {
    {GgmlType::kF32, "F32", 1, 4},           {GgmlType::kF16, "F16", 1, 2},
    {GgmlType::kBF16, "BF16", 1, 2},         {GgmlType::kQ80, "Q8_0", 32, 34},
    {GgmlType::kQ6K, "Q6_K", 256, 210},      {GgmlType::kQ50, "Q5_0", 32, 22},
    {GgmlType::kQ51, "Q5_1", 32, 24},        {GgmlType::kQ5K, "Q5_K", 256, 176},
    {GgmlType::kQ40, "Q4_0", 32, 18},        {GgmlType::kQ41, "Q4_1", 32, 20},
    {GgmlType::kQ4K, "Q4_K", 256, 144},      {GgmlType::kIq4Nl, "IQ4_NL", 32, 18},
    {GgmlType::kIq4Xs, "IQ4_XS", 256, 136},  {GgmlType::kMxfp4, "MXFP4", 32, 17},
    {GgmlType::kQ3K, "Q3_K", 256, 110},      {GgmlType::kIq3S, "IQ3_S", 256, 110},
    {GgmlType::kIq3Xxs, "IQ3_XXS", 256, 98}, {GgmlType::kQ2K, "Q2_K", 256, 84}};

// Types that are not read.
struct OtherType {
  uint32_t number;
  std::string_view name;
};
constexpr OtherType kOthers[] = {
    {4, "Q4_2"},        {5, "Q4_3"},        {9, "Q8_1"},   {15, "Q8_K"},  {16, "IQ2_XXS"},
    {17, "IQ2_XS"},     {19, "IQ1_S"},      {22, "IQ2_S"}, {24, "I8"},    {25, "I16"},
    {26, "I32"},        {27, "I64"},        {28, "F64"},   {29, "IQ1_M"}, {31, "Q4_0_4_4"},
    {32, "Q4_0_4_8"},   {33, "Q4_0_8_8"},   {34, "TQ1_0"}, {35, "TQ2_0"}, {36, "IQ4_NL_4_4"},
    {37, "IQ4_NL_4_8"}, {38, "IQ4_NL_8_8"}, {40, "NVFP4"}, {41, "Q1_0"},  {42, "Q2_0"}};
// ik_llama.cpp's that occur in files, from 133 on.
constexpr uint32_t kFirstIk = 133;
constexpr std::string_view kIk[] = {
    "Q6_0", "IQ1_BN", "IQ2_BN", "",       "IQ2_K",   "IQ3_K",  "IQ4_K",  "IQ5_K", "IQ6_K",
    "",     "",       "IQ4_KS", "IQ2_KS", "IQ4_KSS", "",       "",       "",      "",
    "",     "IQ5_KS", "IQ2_KT", "IQ3_KT", "IQ4_KT",  "IQ3_KS", "IQ2_KL", "IQ1_KT"};

}  // namespace

const GgmlBlock* find_ggml_block(uint32_t type) {
  const auto* found = std::find_if(
      std::begin(kBlocks), std::end(kBlocks),
      [&](const GgmlBlock& block) { return static_cast<uint32_t>(block.type) == type; });
  return found == std::end(kBlocks) ? nullptr : found;
}

std::string ggml_type_text(GgmlType type) {
  const auto number = static_cast<uint32_t>(type);
  if (const GgmlBlock* block = find_ggml_block(number)) return std::string(block->name);
  for (const OtherType& other : kOthers) {
    if (other.number == number) return std::string(other.name);
  }
  if (number >= kFirstIk && number - kFirstIk < std::size(kIk) && !kIk[number - kFirstIk].empty()) {
    return fmt::format("{} (of ik_llama.cpp)", kIk[number - kFirstIk]);
  }
  return fmt::format("{} (of another engine)", number);
}

std::string ggml_types_read() {
  std::string names;
  for (const GgmlBlock& block : kBlocks) {
    names += names.empty() ? "" : ", ";
    names += block.name;
  }
  return names;
}

}  // namespace fasa
