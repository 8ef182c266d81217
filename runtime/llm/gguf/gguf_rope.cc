#include "runtime/llm/gguf/gguf_config_parts.h"

#include <fmt/format.h>

#include <algorithm>
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
  std::memcpy(divisors.data(), tensor.data, divisors.size() * sizeof(float));
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

// The original context length of Llama 3.1's divisors; 0: they are others.
int64_t llama3_original(const std::vector<float>& divisors, double theta) {
  constexpr int64_t kLow = 256, kHigh = int64_t{1} << 20;
  const auto pairs = static_cast<int64_t>(divisors.size());
  const auto factor = static_cast<double>(divisors.back());
  for (int64_t original = kLow; original <= kHigh; original *= 2) {
    bool equal = true;
    for (int64_t i = 0; equal && i < pairs; ++i) {
      const double expected =
          llama3_divisor(theta, i, 2 * pairs, factor, static_cast<double>(original));
      const auto given = static_cast<double>(divisors[static_cast<size_t>(i)]);
      equal = std::abs(given - expected) <= 1e-3 * expected;
    }
    if (equal) return original;
  }
  return 0;
}

// Any divisors: LongRoPE with one set.
nlohmann::json any_divisors(const std::vector<float>& divisors, double factor) {
  nlohmann::json all = nlohmann::json::array();
  for (const float divisor : divisors) all.push_back(factor * static_cast<double>(divisor));
  return {{"rope_type", "longrope"},
          {"attention_factor", 1},
          {"short_factor", all},
          {"long_factor", all}};
}

// `factor`: of all frequencies beside the divisors.
nlohmann::json divided_frequencies(const std::vector<float>& divisors, double theta,
                                   double factor) {
  const bool none = std::all_of(divisors.begin(), divisors.end(), [](float d) { return d == 1; });
  if (none && factor == 1) return nullptr;
  const int64_t original = factor == 1 ? llama3_original(divisors, theta) : 0;
  if (original == 0) return any_divisors(divisors, factor);
  return {{"rope_type", "llama3"},
          {"factor", divisors.back()},
          {"low_freq_factor", 1},
          {"high_freq_factor", 4},
          {"original_max_position_embeddings", original}};
}

nlohmann::json long_rope(const GgufHeader& header, const GgufKeys& keys, int64_t original,
                         const std::vector<float>& beyond) {
  nlohmann::json scaling = {
      {"rope_type", "longrope"},
      {"long_factor", beyond},
      {"short_factor", gguf_frequency_divisors(header, "rope_factors_short.weight")},
      {"original_max_position_embeddings", original}};
  if (keys.has("rope.scaling.attn_factor")) {
    scaling["attention_factor"] = keys.number("rope.scaling.attn_factor");
  }
  return scaling;
}

nlohmann::json yarn(const GgufHeader& header, const GgufKeys& keys, const ModelFamily& family,
                    double factor, int64_t original) {
  constexpr const char* kLogMultiplier = "rope.scaling.yarn_log_multiplier";
  constexpr const char* kExtrapolation = "rope.scaling.yarn_ext_factor";
  // Not stored in files: only gpt-oss was trained with ramps that begin and end between two pairs.
  nlohmann::json scaling = {{"rope_type", "yarn"},
                            {"factor", factor},
                            {"truncate", header.text("general.architecture") != "gpt-oss"},
                            {"original_max_position_embeddings", original}};
  constexpr std::pair<const char*, const char*> kBetas[] = {
      {"rope.scaling.yarn_beta_fast", "beta_fast"}, {"rope.scaling.yarn_beta_slow", "beta_slow"}};
  for (const auto& [key, name] : kBetas) {
    if (keys.has(key)) scaling[name] = keys.number(key);
  }
  // Below 0: not set. Between 0 and 1, short waves would be stretched in part.
  if (const double share = keys.number_or(kExtrapolation, 1); share >= 0 && share != 1) {
    keys.fail(kExtrapolation, "1");
  }
  double all_dim = keys.number_or(kLogMultiplier, 0);
  if (family.latent_attention) {  // stored as 0.1 times the config's mscale_all_dim
    if (!keys.has(kLogMultiplier)) keys.fail(kLogMultiplier, "a number");
    all_dim = six_digits(all_dim / 0.1);
  }
  const auto magnitude = [&](double scale) {
    return factor <= 1 ? 1.0 : 0.1 * scale * std::log(factor) + 1;
  };
  if (all_dim != 0) {  // mscale is not stored: 1, or in latent attention equal to mscale_all_dim
    scaling["mscale"] = family.latent_attention ? all_dim : 1.0;
    scaling["mscale_all_dim"] = all_dim;
  }
  const double usual = all_dim == 0              ? magnitude(1)
                       : family.latent_attention ? 1
                                                 : magnitude(1) / magnitude(all_dim);
  const double attention = keys.number_or("rope.scaling.yarn_attn_factor", usual) *
                           keys.number_or("rope.scaling.attn_factor", 1);
  if (attention != usual) scaling["attention_factor"] = attention;
  return scaling;
}

// The keys of yarn have no effect without it, unless they switch it on.
void refuse_yarn(const GgufKeys& keys) {
  constexpr std::pair<const char*, double> kNeutral[] = {{"rope.scaling.attn_factor", 1},
                                                         {"rope.scaling.yarn_attn_factor", 1},
                                                         {"rope.scaling.yarn_ext_factor", 0}};
  for (const auto& [key, neutral] : kNeutral) {
    const double value = keys.number_or(key, neutral);
    const bool unset = neutral == 0 && value < 0;
    if (value != neutral && !unset) keys.fail(key, fmt::format("{} without yarn", neutral));
  }
  for (const char* const key : {"yarn_beta_fast", "yarn_beta_slow", "yarn_log_multiplier"}) {
    keys.has(fmt::format("rope.scaling.{}", key));
  }
}

// As llama.cpp: a factor without a kind is linear; before 2023-11 it was rope.scale_linear.
double factor_of(const GgufKeys& keys) {
  constexpr const char* kFactor = "rope.scaling.factor";
  const char* const key = keys.has(kFactor) ? kFactor : "rope.scale_linear";
  keys.has("rope.scale_linear");
  const double factor = keys.number_or(key, 1);
  if (factor <= 0) keys.fail(key, "a number above 0");
  return factor;
}

// Null: none.
nlohmann::json scaling_of(const GgufHeader& header, const GgufKeys& keys, const ModelFamily& family,
                          double theta) {
  constexpr const char* kType = "rope.scaling.type";
  const std::string kind = keys.text_or(kType, "linear");
  double factor = factor_of(keys);
  const int64_t original =
      keys.integer_or("rope.scaling.original_context_length", keys.integer("context_length"));
  if (kind == "none") factor = 1;
  std::vector<float> divisors = gguf_frequency_divisors(header, "rope_freqs.weight");
  if (family.proportional_rope) divisors.clear();  // read with the family's other settings
  const std::vector<float> beyond = gguf_frequency_divisors(header, "rope_factors_long.weight");
  if (kind == "yarn") {
    if (!divisors.empty() || !beyond.empty()) keys.fail(kType, "none beside frequency divisors");
    return yarn(header, keys, family, factor, original);
  }
  if (!beyond.empty() && divisors.empty()) {
    if (factor != 1) keys.fail("rope.scaling.factor", "1 beside rope_factors_long.weight");
    keys.has("rope.scaling.yarn_attn_factor");
    return long_rope(header, keys, original, beyond);
  }
  refuse_yarn(keys);
  if (!divisors.empty()) return divided_frequencies(divisors, theta, factor);
  if (kind != "none" && kind != "linear") keys.fail(kType, "none, linear, yarn");
  if (factor != 1) return {{"rope_type", "linear"}, {"factor", factor}};
  if (keys.text_or(kType, "none") == "linear" && !keys.has("rope.scaling.factor")) {
    keys.fail("rope.scaling.factor", "a number above 0");
  }
  return nullptr;
}

}  // namespace

void add_gguf_rope(const GgufHeader& header, const GgufKeys& keys, const ModelFamily& family,
                   nlohmann::json* config) {
  constexpr const char* kWindowBase = "rope.freq_base_swa";
  double theta = keys.number_or("rope.freq_base", 10000);
  if (keys.has(kWindowBase) && !family.local_rope && family.type != "olmo2") {
    const double own = keys.number(kWindowBase);
    if (own != theta && !family.unrotated_full) keys.fail(kWindowBase, "rope.freq_base");
    theta = own;
  }
  if (family.rotary_layout == RotaryLayout::kInterleaved &&
      header.any_differs(keys.name("rope.dimension_sections"), 0)) {
    keys.fail("rope.dimension_sections", "0 for this architecture");
  }
  (*config)["rope_theta"] = theta;
  nlohmann::json scaling = scaling_of(header, keys, family, theta);
  if (family.proportional_rope) {
    if (!scaling.is_null()) keys.fail("rope.scaling.type", "none for this architecture");
    return;
  }
  if (family.query_growth) {
    if (scaling.is_null()) scaling = {{"rope_type", "default"}};
    constexpr const char* kGrowth = "attention.temperature_scale";
    if (keys.has(kGrowth)) scaling["llama_4_scaling_beta"] = keys.number(kGrowth);
    scaling["rope_theta"] = theta;
    (*config)["rope_parameters"] = scaling;
  } else if (!scaling.is_null()) {
    (*config)["rope_scaling"] = scaling;
  }
}

}  // namespace fasa
