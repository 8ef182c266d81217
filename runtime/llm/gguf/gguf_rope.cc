#include "runtime/llm/gguf/gguf_rope.h"

#include <fmt/format.h>

#include <cmath>
#include <cstring>
#include <numbers>

#include "runtime/base/error.h"

namespace fasa {

std::vector<float> gguf_frequency_divisors(const GgufHeader& header, const char* name) {
  const auto found = header.tensors().find(name);
  if (found == header.tensors().end()) return {};
  const GgufTensor& tensor = found->second;
  const int64_t pairs = tensor.shape.back();
  if (tensor.shape.size() != 1 || tensor.block->type != GgmlType::kF32 || pairs > 4096) {
    throw InputError(fmt::format(
        "{}: tensor {}: unsupported type or shape; allowed: one row of F32", header.name(), name));
  }
  std::vector<float> divisors(static_cast<size_t>(pairs));
  std::memcpy(divisors.data(), header.data().data() + tensor.begin, divisors.size() * 4);
  return divisors;
}

namespace {

// Llama 3.1 frequencies are stored as divisors: 1 for short wavelengths, the factor for long ones,
// a smooth blend between.
double llama3_divisor(double theta, int64_t pair, int64_t dims, double factor, double original) {
  constexpr double kLow = 1, kHigh = 4;
  const double frequency =
      std::pow(theta, -2.0 * static_cast<double>(pair) / static_cast<double>(dims));
  const double turns = original * frequency / (2 * std::numbers::pi);
  if (turns > kHigh) return 1;
  if (turns < kLow) return factor;
  const double smooth = (turns - kLow) / (kHigh - kLow);
  return 1 / ((1 - smooth) / factor + smooth);
}

nlohmann::json divided_frequencies(const GgufHeader& header, const std::vector<float>& divisors,
                                   double theta) {
  constexpr int64_t kOriginal = 8192;
  constexpr const char* kName = "rope_freqs.weight";
  const auto pairs = static_cast<int64_t>(divisors.size());
  const double factor = static_cast<double>(divisors.back());
  for (int64_t i = 0; i < pairs; ++i) {
    const double expected = llama3_divisor(theta, i, 2 * pairs, factor, kOriginal);
    if (!(std::abs(static_cast<double>(divisors[static_cast<size_t>(i)]) - expected) <=
          1e-3 * expected)) {
      throw InputError(
          fmt::format("{}: tensor {}: unsupported frequency divisors; allowed: those of Llama 3.1, "
                      "for {} original positions",
                      header.name(), kName, kOriginal));
    }
  }
  if (factor == 1) return nullptr;
  return {{"rope_type", "llama3"},
          {"factor", factor},
          {"low_freq_factor", 1},
          {"high_freq_factor", 4},
          {"original_max_position_embeddings", kOriginal}};
}

nlohmann::json long_rope(const GgufHeader& header, const GgufKeys& keys,
                         const std::vector<float>& beyond) {
  nlohmann::json scaling = {
      {"rope_type", "longrope"},
      {"long_factor", beyond},
      {"short_factor", gguf_frequency_divisors(header, "rope_factors_short.weight")},
      {"original_max_position_embeddings", keys.integer("rope.scaling.original_context_length")}};
  if (keys.has("rope.scaling.attn_factor")) {
    scaling["attention_factor"] = keys.number("rope.scaling.attn_factor");
  }
  return scaling;
}

}  // namespace

nlohmann::json gguf_rope_scaling(const GgufHeader& header, const GgufKeys& keys, double theta) {
  const std::string kind = keys.text_or("rope.scaling.type", "none");
  const std::vector<float> divisors = gguf_frequency_divisors(header, "rope_freqs.weight");
  if (!divisors.empty()) return divided_frequencies(header, divisors, theta);
  const std::vector<float> beyond = gguf_frequency_divisors(header, "rope_factors_long.weight");
  if (!beyond.empty()) return long_rope(header, keys, beyond);
  if (kind == "none") return nullptr;
  const double factor = keys.number("rope.scaling.factor");
  if (kind == "linear") return {{"rope_type", "linear"}, {"factor", factor}};
  if (kind == "yarn") {
    // Not stored in files: only gpt-oss was trained with ramps that begin and end between two
    // pairs.
    return {
        {"rope_type", "yarn"},
        {"factor", factor},
        {"truncate", header.text("general.architecture") != "gpt-oss"},
        {"original_max_position_embeddings", keys.integer("rope.scaling.original_context_length")}};
  }
  keys.fail("rope.scaling.type", "none, linear, yarn");
}

}  // namespace fasa
