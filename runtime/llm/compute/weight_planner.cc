#include "runtime/llm/compute/weight_planner.h"

#include <fmt/format.h>

#include "runtime/llm/config/text_root.h"

namespace fasa {
namespace {

// As in transformers, independent of the config's epsilon.
constexpr float kLatentNormEps = 1e-6f;

MemorySpace experts_space(const WeightOptions& options) {
  return options.experts == ExpertLocation::kHost ? MemorySpace::kHost : MemorySpace::kDevice;
}

}  // namespace

std::optional<Rounding> rounding_of(WeightRounding to, int group) {
  if (to == WeightRounding::kAsIs) return std::nullopt;
  return Rounding{.bits = to == WeightRounding::kInt8 ? 8 : 4, .group = group};
}

WeightPlanner::WeightPlanner(const ModelConfig& config, const WeightOptions& options,
                             WeightPlan* plan, std::string layer)
    : config_(config),
      names_(config.family->names),
      root_(text_root(plan->files(), *config.family)),
      layer_(std::move(layer)),
      all_{.rounding = rounding_of(options.rounding, options.group)},
      routed_{.rounding = all_.rounding, .space = experts_space(options)},
      plan_(plan) {}

void WeightPlanner::layer(int index, LayerWeights* layer) const {
  layer_norm(index, names_.attention_norm, &layer->attention_norm);
  if (config_.is_linear(index)) {
    linear_attention(index, layer);
  } else if (config_.has_mla()) {
    latent_attention(index, layer);
  } else {
    attention(index, layer);
  }
  layer_norm(index, names_.attention_out_norm, &layer->attention_out_norm);
  mlp(index, layer);
  layer_norm(index, names_.mlp_out_norm, &layer->mlp_out_norm);
  if (config_.layer_input > 0) layer_input(index, &layer->input);
  if (!names_.layer_factor.empty()) {
    plan_->vector(&layer->factor, {{bare(index, names_.layer_factor), 1}});
  }
}

void WeightPlanner::norm(const std::string& tensor, int64_t size, Norm* norm, float scale) const {
  *norm = {.kind = config_.family->norm, .eps = config_.norm_eps};
  plan_->vector(&norm->weight, {{tensor + ".weight", size}},
                {.base = config_.family->norm_base, .scale = scale});
  if (norm->kind == NormKind::kLayer && config_.family->norm_bias) {
    plan_->vector(&norm->bias, {{tensor + ".bias", size}});
  }
}

WeightPlan::Part WeightPlanner::first_key(int index) const {
  if (config_.has_mla()) {
    return {in_layer(index, "self_attn.kv_a_proj_with_mqa") + ".weight", config_.head_dim};
  }
  return qkv(config_.kv_layer(index), "weight").at(first_key_part());
}

std::string WeightPlanner::head() const {
  const std::string beside = kHeadRoot + std::string(names_.head);
  return plan_->has(beside + ".weight") ? beside : std::string(names_.head);
}

std::string WeightPlanner::in_layer(int index, std::string_view name) const {
  if (!layer_.empty()) return layer_ + std::string(name);
  return fmt::format("{}{}.{}.{}", root_, names_.layers, index, name);
}

void WeightPlanner::layer_norm(int index, std::string_view name, Norm* norm) const {
  if (!name.empty()) this->norm(in_layer(index, name), config_.hidden, norm);
}

std::string WeightPlanner::bare(int index, std::string_view name) const {
  const std::string plain = in_layer(index, name);
  return plan_->has(plain + ".weight") ? plain + ".weight" : plain;
}

int64_t WeightPlanner::query_rows(int index) const {
  return int64_t{config_.query_heads} * config_.heads(index).key_dim;
}

int64_t WeightPlanner::key_rows(int index) const {
  const HeadShape heads = config_.heads(index);
  return int64_t{heads.kv_heads} * heads.key_dim;
}

size_t WeightPlanner::first_key_part() const {
  const bool by_head = config_.family->qkv_layout == QkvLayout::kByHead;
  return by_head || config_.family->output_gate ? static_cast<size_t>(config_.query_heads) : 1;
}

WeightPlan::Parts WeightPlanner::queries(int index, const std::string& tensor, bool gates) const {
  if (!config_.family->output_gate) return {{tensor, query_rows(index)}};
  const int64_t dim = config_.heads(index).key_dim;
  Parts parts;
  for (int64_t head = 0; head < config_.query_heads; ++head) {
    parts.push_back({tensor, dim, (2 * head + (gates ? 1 : 0)) * dim, 2 * query_rows(index)});
  }
  return parts;
}

WeightPlan::Parts WeightPlanner::qkv(int index, std::string_view kind) const {
  const auto tensor = [&](std::string_view name) {
    return fmt::format("{}.{}", in_layer(index, name), kind);
  };
  const int64_t queries = query_rows(index);
  const int64_t keys = key_rows(index);
  const int64_t all = queries + 2 * keys;
  Parts parts;
  switch (config_.family->qkv_layout) {
    case QkvLayout::kSeparate:
      parts = this->queries(index, tensor(names_.query), false);
      if (config_.is_shared(index)) return parts;
      parts.push_back({tensor(names_.key), keys});
      if (!config_.takes_keys_as_values(index)) parts.push_back({tensor(names_.value), keys});
      return parts;
    case QkvLayout::kStacked:
      return {{tensor(names_.qkv), queries, 0, all},
              {tensor(names_.qkv), keys, queries, all},
              {tensor(names_.qkv), keys, queries + keys, all}};
    case QkvLayout::kByHead:
      break;
  }
  const int64_t dim = config_.head_dim;
  for (int part = 0; part < 3; ++part) {
    for (int head = 0; head < config_.query_heads; ++head) {
      parts.push_back({tensor(names_.qkv), dim, (3 * head + part) * dim, all});
    }
  }
  return parts;
}

void WeightPlanner::head_norm(const std::string& tensor, int heads, int64_t dim, Norm* norm) const {
  if (config_.head_norm == HeadNorm::kNone) return;
  if (config_.head_norm == HeadNorm::kShared) return this->norm(tensor, dim, norm);
  if (config_.head_norm == HeadNorm::kTogether) return this->norm(tensor, heads * dim, norm);
  *norm = {.kind = config_.family->norm, .eps = config_.norm_eps};
  Parts parts;
  for (int head = 0; head < heads; ++head) {
    parts.push_back({fmt::format("{}.norms.{}.weight", tensor, head), dim});
  }
  plan_->vector(&norm->weight, parts);
}

void WeightPlanner::attention(int index, LayerWeights* layer) const {
  const int64_t hidden = config_.hidden;
  const std::string output = in_layer(index, names_.output);
  plan_->matrix(&layer->qkv, qkv(index, "weight"), hidden, all_);
  if (config_.family->output_gate) {
    plan_->matrix(&layer->output_gate,
                  queries(index, in_layer(index, names_.query) + ".weight", true), hidden, all_);
  }
  plan_->matrix(&layer->output, {{output + ".weight", hidden}}, query_rows(index), all_);
  if (config_.qkv_bias) plan_->vector(&layer->qkv_bias, qkv(index, "bias"));
  if (config_.output_bias) plan_->vector(&layer->output_bias, {{output + ".bias", hidden}});
  if (config_.has_sinks()) {
    plan_->vector(&layer->sinks, {{bare(index, names_.sinks), config_.query_heads}});
  }
  const HeadShape heads = config_.heads(index);
  head_norm(in_layer(index, names_.query_norm), config_.query_heads, heads.key_dim,
            &layer->query_norm);
  if (config_.is_shared(index)) return ignore_shared(index);
  head_norm(in_layer(index, names_.key_norm), heads.kv_heads, heads.key_dim, &layer->key_norm);
  if (config_.family->value_norm) {
    layer->value_norm = {.kind = NormKind::kBareRms, .eps = config_.norm_eps};
  }
}

void WeightPlanner::ignore_shared(int index) const {
  const HeadShape heads = config_.heads(index);
  const int64_t norm[] = {heads.key_dim};
  const int64_t matrix[] = {key_rows(index), config_.hidden};
  const auto skip = [&](std::string_view name, std::span<const int64_t> shape) {
    const std::string tensor = in_layer(index, name) + ".weight";
    if (plan_->has(tensor)) plan_->used(tensor, shape);
  };
  skip(names_.key, matrix);
  skip(names_.value, matrix);
  skip(names_.key_norm, norm);
}

void WeightPlanner::layer_input(int index, LayerInputWeights* weights) const {
  const auto tensor = [&](std::string_view name) { return in_layer(index, name) + ".weight"; };
  const int64_t width = config_.layer_input;
  plan_->matrix(&weights->gate, {{tensor(names_.layer_input_gate), width}}, config_.hidden, all_);
  plan_->matrix(&weights->projection, {{tensor(names_.layer_input_projection), config_.hidden}},
                width, all_);
  layer_norm(index, names_.layer_input_norm, &weights->norm);
}

void WeightPlanner::latent_attention(int index, LayerWeights* layer) const {
  const LatentShape& shape = config_.mla;
  const int64_t heads = config_.query_heads;
  const int64_t queries = heads * (shape.plain + config_.rotary_dims);
  const auto tensor = [&](const char* name) { return in_layer(index, "self_attn.") + name; };
  LatentWeights& mla = layer->mla;
  if (shape.query_rank > 0) {
    plan_->matrix(&mla.query_down, {{tensor("q_a_proj.weight"), shape.query_rank}}, config_.hidden);
    norm(tensor("q_a_layernorm"), shape.query_rank, &mla.query_norm);
    plan_->matrix(&mla.query, {{tensor("q_b_proj.weight"), queries}}, shape.query_rank);
  } else {
    plan_->matrix(&mla.query, {{tensor("q_proj.weight"), queries}}, config_.hidden);
  }
  plan_->matrix(&mla.key_down, {{tensor("kv_a_proj_with_mqa.weight"), config_.head_dim}},
                config_.hidden);
  norm(tensor("kv_a_layernorm"), shape.latent, &mla.key_norm);
  mla.key_norm.eps = mla.query_norm.eps = kLatentNormEps;
  const int64_t rows = shape.plain + shape.value;  // of one head
  mla.absorb.resize(static_cast<size_t>(heads));
  mla.expand.resize(static_cast<size_t>(heads));
  const std::string up = tensor("kv_b_proj.weight");
  const std::string keys = tensor("k_b_proj.weight"), values = tensor("v_b_proj.weight");
  for (int64_t head = 0; head < heads; ++head) {
    const auto at = static_cast<size_t>(head);
    if (plan_->has(keys)) {  // GGUF: taken apart, and the keys' part transposed
      plan_->one_of_batch(&mla.absorb[at],
                          {keys, shape.latent, head * shape.latent, heads * shape.latent, heads},
                          shape.plain);
      plan_->one_of_batch(&mla.expand[at],
                          {values, shape.value, head * shape.value, heads * shape.value, heads},
                          shape.latent);
      continue;
    }
    plan_->transposed(&mla.absorb[at], {up, shape.plain, head * rows, heads * rows}, shape.latent);
    plan_->one_of_batch(&mla.expand[at], {up, shape.value, head * rows + shape.plain, heads * rows},
                        shape.latent);
  }
  plan_->matrix(&layer->output, {{tensor("o_proj.weight"), config_.hidden}}, heads * shape.value,
                all_);
}

WeightPlan::Parts WeightPlanner::gate_up(int index, std::string_view kind) const {
  if (!names_.gate_up.empty()) {
    return {{fmt::format("{}.{}", in_layer(index, names_.gate_up), kind),
             2 * int64_t{config_.mlp_width(index)}}};
  }
  Parts parts;
  for (const std::string_view name : {names_.gate, names_.up}) {
    if (name.empty()) continue;
    parts.push_back({fmt::format("{}.{}", in_layer(index, name), kind), config_.mlp_width(index)});
  }
  return parts;
}

void WeightPlanner::mlp(int index, LayerWeights* layer) const {
  layer_norm(index, config_.one_norm ? names_.attention_norm : names_.mlp_norm, &layer->mlp_norm);
  if (config_.has_experts(index)) {
    experts(index, &layer->experts);
    if (!config_.experts.beside_mlp) return;
  }
  const std::string down = in_layer(index, names_.down);
  plan_->matrix(&layer->gate_up, gate_up(index, "weight"), config_.hidden, all_);
  plan_->matrix(&layer->down, {{down + ".weight", config_.hidden}}, config_.mlp_width(index), all_);
  if (config_.mlp_bias) {
    plan_->vector(&layer->gate_up_bias, gate_up(index, "bias"));
    plan_->vector(&layer->down_bias, {{down + ".bias", config_.hidden}});
  }
}

}  // namespace fasa
