#include "runtime/llm/gguf/gguf_config_parts.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string_view>

namespace fasa {
namespace {

// Keys that change results, each with the value that does not.
struct Neutral {
  std::string_view key;
  double value;
};
constexpr Neutral kNeutral[] = {
    {"attention.causal", 1},
    {"attention.clamp_kqv", 0},
    {"attention.group_norm_groups", 0},
    {"attention.max_alibi_bias", 0},
    {"attention.output_scale", 1},
    {"attention.scale", 0},
    {"attention.shared_kv_layers", 0},
    {"attention.sliding_window", 0},
    {"attention.temperature_length", 0},
    {"attention.temperature_scale", 0},
    {"attention.value_scale", 1},
    {"attn_logit_softcapping", 0},
    {"decoder_block_count", 0},
    {"embedding_length_per_layer_input", 0},
    {"embedding_scale", 1},
    {"expert_count", 0},
    {"expert_group_count", 1},
    {"expert_shared_count", 0},
    {"expert_shared_feed_forward_length", 0},
    {"expert_weights_scale", 1},
    {"final_logit_softcapping", 0},
    {"interleave_moe_layer_step", 1},
    {"leading_dense_block_count", 0},
    {"logit_scale", 1},
    {"moe_every_n_layers", 1},
    {"num_loops", 1},
    {"residual_scale", 1},
    {"rope.scaling.alpha", 0},
    {"rope.scaling.attn_factor", 1},
    {"rope.scaling.yarn_ext_factor", 1},
    {"router_logit_softcapping", 0},
    {"swin_norm", 0},
};

// Keys that change nothing here: sizes that tensors show, notes, and other parts of the model.
constexpr std::string_view kWithoutEffect[] = {"attention.head_count_kv",
                                               "attention.key_length_swa",
                                               "attention.layer_norm_epsilon",
                                               "attention.layer_norm_rms_epsilon",
                                               "attention.recurrent_layers",
                                               "attention.value_length_swa",
                                               "expert_feed_forward_length",
                                               "expert_group_used_count",
                                               "expert_used_count",
                                               "expert_weights_norm",
                                               "feed_forward_length",
                                               "full_attention_interval",
                                               "pooling_type",
                                               "rope.dimension_count",
                                               "rope.dimension_count_swa",
                                               "rope.dimension_sections",
                                               "rope.freq_base",
                                               "rope.freq_base_swa",
                                               "rope.scaling.finetuned",
                                               "tensor_data_layout",
                                               "use_parallel_residual",
                                               "vocab_size"};
constexpr std::string_view kOtherParts[] = {"vision.", "audio.", "mm.", "image_token", "nextn."};

std::optional<double> neutral_value(std::string_view key) {
  for (const Neutral& known : kNeutral) {
    if (known.key == key) return known.value;
  }
  return std::nullopt;
}

bool has_no_effect(std::string_view key) {
  const auto starts = [&](std::string_view part) { return key.starts_with(part); };
  return std::any_of(std::begin(kOtherParts), std::end(kOtherParts), starts) ||
         std::find(std::begin(kWithoutEffect), std::end(kWithoutEffect), key) !=
             std::end(kWithoutEffect);
}

}  // namespace

void require_known_keys(const GgufHeader& header, const GgufKeys& keys) {
  for (const std::string& key : keys.unread()) {
    const auto neutral = neutral_value(key);
    if (!neutral) continue;
    const std::string name = keys.name(key);
    if (header.any_differs(name, *neutral)) {
      header.fail(name, fmt::format("{} for this architecture", *neutral));
    }
  }
}

std::vector<std::string> unknown_keys(const GgufHeader& header, const GgufKeys& keys) {
  std::vector<std::string> unknown;
  for (const std::string& key : keys.unread()) {
    if (!neutral_value(key) && !has_no_effect(key)) unknown.push_back(keys.name(key));
  }
  constexpr std::string_view kGeneral[] = {"general.", "tokenizer.", "split.",       "quantize.",
                                           "imatrix.", "adapter.",   "mradermacher."};
  const std::string own = keys.name("");
  for (const std::string& key : header.keys()) {
    const bool general = std::any_of(std::begin(kGeneral), std::end(kGeneral),
                                     [&](std::string_view part) { return key.starts_with(part); });
    if (!general && !key.starts_with(own)) unknown.push_back(key);
  }
  return unknown;
}

}  // namespace fasa
