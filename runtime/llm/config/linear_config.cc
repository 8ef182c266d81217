#include "runtime/llm/config/config_parts.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace fasa {
namespace {

std::vector<bool> read_linear_layers(const JsonFields& fields, size_t layers) {
  constexpr const char* kTypes = "layer_types";
  std::vector<bool> linear(layers);
  if (!fields.has(kTypes)) {
    const auto every =
        static_cast<size_t>(fields.integer_or("full_attention_interval", 1, 4096, 4));
    for (size_t i = 0; i < layers; ++i) linear[i] = (i + 1) % every != 0;
    return linear;
  }
  const nlohmann::json& types = fields.at(kTypes);
  if (!types.is_array() || types.size() != layers) {
    fields.fail(kTypes, fmt::format("a list of {} strings, one per layer", layers));
  }
  for (size_t i = 0; i < layers; ++i) {
    linear[i] = types[i] == "linear_attention";
    if (!linear[i] && types[i] != "full_attention") {
      fields.fail(kTypes, "a list of full_attention and linear_attention");
    }
  }
  return linear;
}

}  // namespace

void read_linear(const JsonFields& fields, ModelConfig* config) {
  if (config->family->linear == LinearKind::kNone) return;
  if (fields.boolean_or("attention_bias", false)) fields.fail("attention_bias", "false");
  std::vector<bool> layers = read_linear_layers(fields, static_cast<size_t>(config->layers));
  const auto count = std::count(layers.begin(), layers.end(), true);
  if (count == config->layers) fields.fail("layer_types", "at least one layer of full_attention");
  if (count == 0) return;
  const auto integer = [&](const char* key, int64_t high, int64_t otherwise) {
    return static_cast<int>(fields.integer_or(key, 1, high, otherwise));
  };
  config->linear = {.layers = static_cast<int>(count),
                    .key_heads = integer("linear_num_key_heads", kMaxHeads, 16),
                    .value_heads = integer("linear_num_value_heads", kMaxHeads, 32),
                    .key_dim = integer("linear_key_head_dim", kMaxHeadDim, 128),
                    .value_dim = integer("linear_value_head_dim", kMaxHeadDim, 128),
                    .taps = integer("linear_conv_kernel_dim", kMaxLinearTaps, 4),
                    .heads_by_turns = fields.boolean_or("linear_heads_by_turns", false)};
  if (config->linear.value_heads % config->linear.key_heads != 0) {
    fields.fail("linear_num_value_heads",
                fmt::format("a multiple of linear_num_key_heads = {}", config->linear.key_heads));
  }
  if (config->activation != Activation::kSilu) fields.fail("hidden_act", "silu");
  config->linear_layers = std::move(layers);
}

}  // namespace fasa
