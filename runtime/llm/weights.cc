#include "runtime/llm/weights.h"

#include <fmt/format.h>

#include "runtime/llm/weight_plan.h"

namespace fasa {
namespace {

void plan_layer(const ModelConfig& config, const std::string& prefix, WeightPlan* plan,
                LayerWeights* layer) {
  const int64_t hidden = config.hidden;
  const int64_t intermediate = config.intermediate;
  const int64_t query = static_cast<int64_t>(config.query_heads) * config.head_dim;
  const int64_t key = static_cast<int64_t>(config.kv_heads) * config.head_dim;
  const std::string attention = prefix + "self_attn.";
  const std::string mlp = prefix + "mlp.";
  const auto parts = [&](const char* kind) {
    return WeightPlan::Parts{{attention + "q_proj." + kind, query},
                             {attention + "k_proj." + kind, key},
                             {attention + "v_proj." + kind, key}};
  };
  plan->matrix(&layer->qkv, parts("weight"), hidden);
  plan->matrix(&layer->output, {{attention + "o_proj.weight", hidden}}, query);
  plan->matrix(&layer->gate_up,
               {{mlp + "gate_proj.weight", intermediate}, {mlp + "up_proj.weight", intermediate}},
               hidden);
  plan->matrix(&layer->down, {{mlp + "down_proj.weight", hidden}}, intermediate);
  plan->vector(&layer->attention_norm, {{prefix + "input_layernorm.weight", hidden}});
  plan->vector(&layer->mlp_norm, {{prefix + "post_attention_layernorm.weight", hidden}});
  if (config.qkv_bias) plan->vector(&layer->qkv_bias, parts("bias"));
  if (config.output_bias) plan->vector(&layer->output_bias, {{attention + "o_proj.bias", hidden}});
  if (config.mlp_bias) {
    plan->vector(&layer->gate_up_bias,
                 {{mlp + "gate_proj.bias", intermediate}, {mlp + "up_proj.bias", intermediate}});
    plan->vector(&layer->down_bias, {{mlp + "down_proj.bias", hidden}});
  }
  if (config.qk_norm) {
    plan->vector(&layer->query_norm, {{attention + "q_norm.weight", config.head_dim}});
    plan->vector(&layer->key_norm, {{attention + "k_norm.weight", config.head_dim}});
  }
}

std::string hex_row(const WeightView& matrix) {
  std::vector<uint16_t> row(static_cast<size_t>(matrix.shape[1]));
  matrix.read_bf16(0, matrix.shape[1], row.data());
  std::string text;
  for (const uint16_t bits : row) text += fmt::format("{:04x}", bits);
  return text;
}

}  // namespace

Weights::Weights(const std::string& dir, const ModelConfig& config, DType dtype, Device& device,
                 StreamView stream)
    : files_(dir), layers_(static_cast<size_t>(config.layers)) {
  WeightPlan plan(files_, dtype);
  const int64_t table[] = {config.vocab_size, config.hidden};
  const int64_t key[] = {static_cast<int64_t>(config.kv_heads) * config.head_dim, config.hidden};
  const std::string embeddings = "model.embed_tokens.weight";
  embeddings_ = plan.used(embeddings, table);
  for (int layer = 0; layer < config.layers; ++layer) {
    const std::string prefix = fmt::format("model.layers.{}.", layer);
    plan_layer(config, prefix, &plan, &layers_[static_cast<size_t>(layer)]);
    key_rows_.push_back(hex_row(files_.require(prefix + "self_attn.k_proj.weight", key)));
  }
  plan.vector(&final_norm_, {{"model.norm.weight", config.hidden}});
  plan.matrix(&head_, {{config.tie_embeddings ? embeddings : "lm_head.weight", config.vocab_size}},
              config.hidden);
  plan.require_all_used("model.", dir + "/config.json");
  memory_ = plan.load(device, stream);
}

void Weights::embed(int32_t token, float* out) const {
  const int64_t hidden = embeddings_.shape[1];
  embeddings_.read(token * hidden, hidden, out);
}

}  // namespace fasa
