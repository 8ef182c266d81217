#include "runtime/llm/weights.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "runtime/base/error.h"
#include "runtime/llm/packed_scratch.h"
#include "runtime/llm/weight_plan.h"

namespace fasa {
namespace {

// The head's prefix beside a vision part.
constexpr const char* kHeadRoot = "language_model.";

// As in transformers, independent of the config's epsilon.
constexpr float kLatentNormEps = 1e-6f;

std::optional<Rounding> rounding_of(WeightRounding to, int group) {
  if (to == WeightRounding::kAsIs) return std::nullopt;
  return Rounding{.bits = to == WeightRounding::kInt8 ? 8 : 4, .group = group};
}

WeightLayout layout_of(PanelOrder order, DType dtype, const WeightOptions& options) {
  const bool int8 = options.activations == DecodeActivations::kInt8;
  return {.dtype = dtype,
          .order = order,
          .activations = int8 ? PackedActivations::kInt8 : PackedActivations::kModel};
}

MemorySpace experts_space(const WeightOptions& options) {
  return options.experts == ExpertLocation::kHost ? MemorySpace::kHost : MemorySpace::kDevice;
}

// Combines a family's tensor names with one model's shapes.
class Planner {
 public:
  Planner(const ModelConfig& config, const WeightOptions& options, WeightPlan* plan)
      : config_(config),
        names_(config.family->names),
        root_(text_root(plan->files(), *config.family)),
        all_{.rounding = rounding_of(options.rounding, options.group)},
        routed_{.rounding = all_.rounding, .space = experts_space(options)},
        plan_(plan) {}

  const std::string& root() const { return root_; }

  void layer(int index, LayerWeights* layer) const {
    layer_norm(index, names_.attention_norm, &layer->attention_norm);
    if (config_.has_mla()) {
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

  // `tensor`: without ".weight" and ".bias". Weights are multiplied by `scale`.
  void norm(const std::string& tensor, int64_t size, Norm* norm, float scale = 1) const {
    *norm = {.kind = config_.family->norm, .eps = config_.norm_eps};
    plan_->vector(&norm->weight, {{tensor + ".weight", size}},
                  {.base = config_.family->norm_base, .scale = scale});
    if (norm->kind == NormKind::kLayer && config_.family->norm_bias) {
      plan_->vector(&norm->bias, {{tensor + ".bias", size}});
    }
  }

  WeightPlan::Part first_key(int index) const {
    if (config_.has_mla()) {
      return {in_layer(index, "self_attn.kv_a_proj_with_mqa") + ".weight", config_.head_dim};
    }
    return qkv(config_.kv_layer(index), "weight").at(first_key_part());
  }
  std::string in_root(std::string_view name) const { return root_ + std::string(name); }
  // Without ".weight" and ".bias".
  std::string head() const {
    const std::string beside = kHeadRoot + std::string(names_.head);
    return plan_->has(beside + ".weight") ? beside : std::string(names_.head);
  }

 private:
  using Parts = WeightPlan::Parts;

  std::string in_layer(int index, std::string_view name) const {
    return fmt::format("{}{}.{}.{}", root_, names_.layers, index, name);
  }
  void layer_norm(int index, std::string_view name, Norm* norm) const {
    if (!name.empty()) this->norm(in_layer(index, name), config_.hidden, norm);
  }
  // The name of a tensor without a kind; in GGUF files all have one.
  std::string bare(int index, std::string_view name) const {
    const std::string plain = in_layer(index, name);
    return plan_->has(plain + ".weight") ? plain + ".weight" : plain;
  }
  int64_t query_rows(int index) const {
    return int64_t{config_.query_heads} * config_.heads(index).key_dim;
  }
  int64_t key_rows(int index) const {
    const HeadShape heads = config_.heads(index);
    return int64_t{heads.kv_heads} * heads.key_dim;
  }
  size_t first_key_part() const {
    return config_.family->qkv_layout == QkvLayout::kByHead
               ? static_cast<size_t>(config_.query_heads)
               : 1;
  }

  // All queries, then all keys, then all values, for any layout in the file.
  Parts qkv(int index, std::string_view kind) const {
    const auto tensor = [&](std::string_view name) {
      return fmt::format("{}.{}", in_layer(index, name), kind);
    };
    const int64_t queries = query_rows(index);
    const int64_t keys = key_rows(index);
    const int64_t all = queries + 2 * keys;
    Parts parts;
    switch (config_.family->qkv_layout) {
      case QkvLayout::kSeparate:
        parts.push_back({tensor(names_.query), queries});
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

  void head_norm(const std::string& tensor, int heads, int64_t dim, Norm* norm) const {
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

  void attention(int index, LayerWeights* layer) const {
    const int64_t hidden = config_.hidden;
    const std::string output = in_layer(index, names_.output);
    plan_->matrix(&layer->qkv, qkv(index, "weight"), hidden, all_);
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

  // Files may hold keys and values of layers that use another layer's.
  void ignore_shared(int index) const {
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

  void layer_input(int index, LayerInputWeights* weights) const {
    const auto tensor = [&](std::string_view name) { return in_layer(index, name) + ".weight"; };
    const int64_t width = config_.layer_input;
    plan_->matrix(&weights->gate, {{tensor(names_.layer_input_gate), width}}, config_.hidden, all_);
    plan_->matrix(&weights->projection, {{tensor(names_.layer_input_projection), config_.hidden}},
                  width, all_);
    layer_norm(index, names_.layer_input_norm, &weights->norm);
  }

  void latent_attention(int index, LayerWeights* layer) const {
    const LatentShape& shape = config_.mla;
    const int64_t heads = config_.query_heads;
    const int64_t queries = heads * (shape.plain + config_.rotary_dims);
    const auto tensor = [&](const char* name) { return in_layer(index, "self_attn.") + name; };
    LatentWeights& mla = layer->mla;
    if (shape.query_rank > 0) {
      plan_->matrix(&mla.query_down, {{tensor("q_a_proj.weight"), shape.query_rank}},
                    config_.hidden);
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
    for (int64_t head = 0; head < heads; ++head) {
      const auto at = static_cast<size_t>(head);
      plan_->transposed(&mla.absorb[at], {up, shape.plain, head * rows, heads * rows},
                        shape.latent);
      plan_->one_of_batch(&mla.expand[at],
                          {up, shape.value, head * rows + shape.plain, heads * rows}, shape.latent);
    }
    plan_->matrix(&layer->output, {{tensor("o_proj.weight"), config_.hidden}}, heads * shape.value,
                  all_);
  }

  Parts gate_up(int index, std::string_view kind) const {
    if (!names_.gate_up.empty()) {
      return {{fmt::format("{}.{}", in_layer(index, names_.gate_up), kind),
               2 * int64_t{config_.mlp_width(index)}}};
    }
    Parts parts;
    for (const std::string_view name : {names_.gate, names_.up}) {
      if (name.empty()) continue;
      parts.push_back(
          {fmt::format("{}.{}", in_layer(index, name), kind), config_.mlp_width(index)});
    }
    return parts;
  }

  // `prefix` ends with a dot.
  void expert(const std::string& prefix, int64_t intermediate,
              const WeightPlan::MatrixOptions& options, ExpertWeights* weights) const {
    const auto tensor = [&](std::string_view name) {
      return fmt::format("{}{}.weight", prefix, name);
    };
    plan_->matrix(
        &weights->gate_up,
        {{tensor(names_.expert_gate), intermediate}, {tensor(names_.expert_up), intermediate}},
        config_.hidden, options);
    plan_->matrix(&weights->down, {{tensor(names_.expert_down), config_.hidden}}, intermediate,
                  options);
    if (!config_.family->expert_bias) return;
    const auto bias = [&](std::string_view name) { return fmt::format("{}{}.bias", prefix, name); };
    plan_->vector(&weights->gate_up_bias, {{bias(names_.expert_gate), intermediate},
                                           {bias(names_.expert_up), intermediate}});
    plan_->vector(&weights->down_bias, {{bias(names_.expert_down), config_.hidden}});
  }

  // A matrix of one expert in a tensor that holds all experts. Packed ones have rows of inputs like
  // other matrices; plain ones are transposed.
  void one_of_all(const std::string& tensor, size_t which, int64_t outputs, int64_t inputs,
                  Matrix* matrix, const float** bias) const {
    const int64_t count = config_.experts.count;
    const auto index = static_cast<int64_t>(which);
    const std::string packed = tensor + ".weight";
    if (plan_->has(packed)) {
      plan_->matrix(matrix, {{packed, outputs, index * outputs, count * outputs}}, inputs,
                    {.rounding = {}, .space = routed_.space});
    } else {
      plan_->transposed(matrix, {tensor, inputs, index * inputs, count * inputs, count}, outputs,
                        routed_.space);
    }
    plan_->vector(bias, {{tensor + "_bias", outputs, index * outputs, count * outputs, count}});
  }

  // GGUF files are read as separate experts.
  bool has_stacked_experts(int index) const {
    if (names_.expert_gate_up.empty()) return false;
    const std::string first =
        fmt::format("{}.{}", in_layer(index, names_.experts), names_.expert_gate_up);
    return plan_->has(first) || plan_->has(first + ".weight");
  }

  void stacked_experts(int index, ExpertLayerWeights* layer) const {
    const ExpertShape& shape = config_.experts;
    layer->interleaved = true;
    const std::string root = in_layer(index, names_.experts) + ".";
    for (size_t i = 0; i < layer->routed.size(); ++i) {
      ExpertWeights& expert = layer->routed[i];
      one_of_all(root + std::string(names_.expert_gate_up), i, 2 * int64_t{shape.intermediate},
                 config_.hidden, &expert.gate_up, &expert.gate_up_bias);
      one_of_all(root + std::string(names_.expert_down), i, config_.hidden, shape.intermediate,
                 &expert.down, &expert.down_bias);
    }
  }

  // Experts of one tensor each for gate and up, and down, [experts, outputs, inputs].
  void experts_beside(int index, ExpertLayerWeights* layer) const {
    const ExpertShape& shape = config_.experts;
    const auto of_all = [&](std::string_view name, size_t which, int64_t outputs, int64_t inputs,
                            Matrix* matrix) {
      const std::string root = in_layer(index, names_.experts);
      const std::string own = fmt::format("{}.{}.{}.weight", root, which, name);
      if (plan_->has(own)) return plan_->matrix(matrix, {{own, outputs}}, inputs, routed_);  // GGUF
      const int64_t first = static_cast<int64_t>(which) * outputs;
      const std::string all = fmt::format("{}.{}", root, name);
      plan_->matrix(matrix, {{all, outputs, first, shape.count * outputs, shape.count}}, inputs,
                    routed_);
    };
    for (size_t i = 0; i < layer->routed.size(); ++i) {
      ExpertWeights& expert = layer->routed[i];
      of_all(names_.expert_gate_up, i, 2 * int64_t{shape.intermediate}, config_.hidden,
             &expert.gate_up);
      of_all(names_.expert_down, i, config_.hidden, shape.intermediate, &expert.down);
    }
    layer->router_norm = {.kind = NormKind::kRms, .eps = config_.norm_eps};
    plan_->vector(&layer->router_norm.weight, {{bare(index, names_.router_scale), config_.hidden}},
                  {.base = 0, .scale = 1 / std::sqrt(static_cast<float>(config_.hidden))});
    plan_->vector(&layer->scale, {{bare(index, names_.expert_scale), shape.count}});
    layer_norm(index, names_.beside_mlp_out_norm, &layer->mlp_out_norm);
    layer_norm(index, names_.beside_norm, &layer->norm);
    layer_norm(index, names_.beside_out_norm, &layer->out_norm);
  }

  // The router is never rounded: it decides which weights are read.
  void experts(int index, ExpertLayerWeights* layer) const {
    const ExpertShape& shape = config_.experts;
    plan_->matrix(&layer->router, {{in_layer(index, names_.router) + ".weight", shape.count}},
                  config_.hidden);
    layer->routed.resize(static_cast<size_t>(shape.count));
    if (config_.family->expert_bias) {
      plan_->vector(&layer->router_bias, {{in_layer(index, names_.router) + ".bias", shape.count}});
    }
    if (shape.beside_mlp) return experts_beside(index, layer);
    if (has_stacked_experts(index)) return stacked_experts(index, layer);
    for (size_t i = 0; i < layer->routed.size(); ++i) {
      expert(fmt::format("{}.{}.", in_layer(index, names_.experts), i), shape.intermediate, routed_,
             &layer->routed[i]);
    }
    if (shape.shared_intermediate > 0) {
      expert(in_layer(index, names_.shared) + ".", shape.shared_intermediate, all_, &layer->shared);
      if (!names_.shared_gate.empty()) {
        plan_->matrix(&layer->shared_gate, {{in_layer(index, names_.shared_gate) + ".weight", 1}},
                      config_.hidden);
      }
    }
  }

  void mlp(int index, LayerWeights* layer) const {
    layer_norm(index, config_.one_norm ? names_.attention_norm : names_.mlp_norm, &layer->mlp_norm);
    if (config_.has_experts(index)) {
      experts(index, &layer->experts);
      if (!config_.experts.beside_mlp) return;
    }
    const std::string down = in_layer(index, names_.down);
    plan_->matrix(&layer->gate_up, gate_up(index, "weight"), config_.hidden, all_);
    plan_->matrix(&layer->down, {{down + ".weight", config_.hidden}}, config_.mlp_width(index),
                  all_);
    if (config_.mlp_bias) {
      plan_->vector(&layer->gate_up_bias, gate_up(index, "bias"));
      plan_->vector(&layer->down_bias, {{down + ".bias", config_.hidden}});
    }
  }

  const ModelConfig& config_;
  const TensorNames& names_;
  std::string root_;
  WeightPlan::MatrixOptions all_;
  WeightPlan::MatrixOptions routed_;  // for routed experts
  WeightPlan* plan_;
};

std::string hex_row(const WeightView& matrix, int64_t index) {
  const int64_t columns = matrix.shape[1];
  std::vector<uint16_t> row(static_cast<size_t>(columns));
  matrix.read_bf16(index * columns, columns, row.data());
  std::string text;
  for (const uint16_t bits : row) text += fmt::format("{:04x}", bits);
  return text;
}

}  // namespace

// Files of the bare model, without its head, have names without the root. Beside a vision part the
// text model has a root of its own.
std::string text_root(const WeightSource& files, const ModelFamily& family) {
  const TensorNames& names = family.names;
  for (const std::string_view root :
       {names.root, std::string_view(), std::string_view("model.language_model."),
        std::string_view("language_model.model.")}) {
    if (files.has(fmt::format("{}{}.weight", root, names.embeddings))) return std::string(root);
  }
  return std::string(names.root);
}

std::map<std::string, int> unread_parts(const WeightSource& files, const ModelFamily& family) {
  const std::string root = text_root(files, family);
  std::map<std::string, int> parts;
  for (const std::string& name : files.names()) {
    if (name.starts_with(root) || name.starts_with(family.names.head)) continue;
    if (name.starts_with(kHeadRoot + std::string(family.names.head))) continue;
    constexpr std::string_view kModel = "model.";
    const size_t from = name.starts_with(kModel) ? kModel.size() : 0;
    ++parts[name.substr(0, name.find('.', from))];
  }
  return parts;
}

Weights::Weights(std::unique_ptr<WeightSource> source, const ModelConfig& config)
    : files_(std::move(source)),
      embedding_scale_(config.embedding_scale),
      chosen_experts_(static_cast<size_t>(config.experts.chosen)),
      layers_(static_cast<size_t>(config.layers)) {}

Weights::Weights(std::unique_ptr<WeightSource> source, const ModelConfig& config, DType dtype,
                 Device& device, StreamView stream, const WeightOptions& options)
    : Weights(std::move(source), config) {
  const PanelOrder order = device.traits().model_calls ? PanelOrder::kPlain : PanelOrder::kPacked;
  WeightPlan plan(*files_, layout_of(order, dtype, options));
  lay_out(config, options, &plan);
  WeightPlan::Loaded loaded = plan.load(device, stream);
  memory_ = std::move(loaded.device);
  host_memory_ = std::move(loaded.host);
}

WeightBytes Weights::count(std::unique_ptr<WeightSource> source, const ModelConfig& config,
                           DType dtype, PanelOrder order, const WeightOptions& options) {
  Weights weights(std::move(source), config);
  WeightPlan plan(*weights.files_, layout_of(order, dtype, options));
  weights.lay_out(config, options, &plan);
  return weights.bytes();
}

namespace {

bool are_alike(const Matrix& a, const Matrix& b) {
  if (a.parts().size() != b.parts().size()) return false;
  for (size_t i = 0; i < a.parts().size(); ++i) {
    const auto *const one = std::get_if<PackedLinear>(&a.parts()[i].linear),
                      *const other = std::get_if<PackedLinear>(&b.parts()[i].linear);
    if (a.parts()[i].bytes() != b.parts()[i].bytes() || (one == nullptr) != (other == nullptr)) {
      return false;
    }
    if (one == nullptr) continue;
    if (!(one->format() == other->format()) || one->order().size() != other->order().size()) {
      return false;
    }
  }
  return true;
}

}  // namespace

// Kernels compute an expert's addresses from the distance between the first two.
void Weights::require_alike(int layer, const WeightPlan& plan) const {
  const std::vector<ExpertWeights>& experts = layers_[static_cast<size_t>(layer)].experts.routed;
  for (size_t i = 1; i < experts.size(); ++i) {
    if (are_alike(experts[0].gate_up, experts[i].gate_up) &&
        are_alike(experts[0].down, experts[i].down)) {
      continue;
    }
    throw InputError(
        fmt::format("{}: layer {}: the weights of experts 0 and {} have different formats; this "
                    "device needs one format for all experts of a layer",
                    plan.source(), layer, i));
  }
}

// Scratch in which kernels unpack several experts at once.
uint64_t Weights::expert_scratch() const {
  uint64_t bytes = 0;
  for (const LayerWeights& layer : layers_) {
    const auto count = std::ssize(layer.experts.routed);
    if (count == 0) continue;
    const ExpertWeights& expert = layer.experts.routed.front();
    for (const Matrix* matrix : {&expert.gate_up, &expert.down}) {
      for (const Matrix::Part& part : matrix->parts()) {
        const auto* const packed = std::get_if<PackedLinear>(&part.linear);
        if (packed != nullptr) bytes = std::max(bytes, packed_scratch_bytes(*packed, count));
      }
    }
  }
  return bytes;
}

namespace {

uint64_t routed_bytes(const ExpertLayerWeights& layer) {
  uint64_t bytes = 0;
  for (const ExpertWeights& expert : layer.routed) {
    bytes += expert.gate_up.bytes() + expert.down.bytes();
  }
  return bytes;
}

}  // namespace

WeightBytes Weights::bytes() const {
  WeightBytes bytes{.total = planned_bytes_,
                    .host = planned_host_bytes_,
                    .head = head_.bytes(),
                    .kernel_scratch = kernel_scratch_};
  for (const LayerWeights& layer : layers_) {
    const LatentWeights& mla = layer.mla;
    for (const Matrix* matrix :
         {&layer.qkv, &layer.output, &layer.gate_up, &layer.down, &layer.input.gate,
          &layer.input.projection, &mla.query_down, &mla.query, &mla.key_down}) {
      bytes.layers += matrix->bytes();
    }
    for (const Matrix& matrix : mla.absorb) bytes.layers += matrix.bytes();
    for (const Matrix& matrix : mla.expand) bytes.layers += matrix.bytes();
    const ExpertLayerWeights& experts = layer.experts;
    if (!experts.present()) continue;
    bytes.layers += experts.router.bytes() + experts.shared.gate_up.bytes() +
                    experts.shared.down.bytes() + experts.shared_gate.bytes();
    const uint64_t routed = routed_bytes(experts);
    bytes.experts += routed;
    const uint64_t chosen = routed / experts.routed.size() * chosen_experts_;
    bytes.chosen += chosen;
    if (bytes.host == 0) bytes.layers += chosen;
  }
  return bytes;
}

void Weights::lay_out(const ModelConfig& config, const WeightOptions& options, WeightPlan* plan) {
  const Planner planner(config, options, plan);
  const TensorNames& names = config.family->names;
  const std::string embeddings = planner.in_root(names.embeddings) + ".weight";
  const int64_t table[] = {config.vocab_size, config.hidden};
  embeddings_ = plan->used(embeddings, table);
  for (int layer = 0; layer < config.layers; ++layer) {
    planner.layer(layer, &layers_[static_cast<size_t>(layer)]);
    if (plan->is_for_kernels()) require_alike(layer, *plan);
    const WeightPlan::Part key = planner.first_key(layer);
    const int64_t shape[] = {key.of == 0 ? key.rows : key.of, config.hidden};
    key_rows_.push_back(hex_row(files_->require(key.tensor, shape), key.first));
  }
  if (config.layer_input > 0) {
    const int64_t width = int64_t{config.layers} * config.layer_input;
    const int64_t layer_table[] = {config.layer_vocab_size, width};
    layer_embeddings_ =
        plan->used(planner.in_root(names.layer_embeddings) + ".weight", layer_table);
    layer_embedding_scale_ = std::sqrt(static_cast<float>(config.layer_input) / 2);
    plan->matrix(&layer_projection_,
                 {{planner.in_root(names.layer_embedding_projection) + ".weight", width}},
                 config.hidden);
    planner.norm(planner.in_root(names.layer_embedding_norm), config.layer_input,
                 &layer_projection_norm_);
    // The projection's factor hidden^-1/2 is left to the norm.
    layer_projection_norm_.eps *= static_cast<float>(config.hidden);
  }
  if (!names.embedding_norm.empty()) {
    planner.norm(planner.in_root(names.embedding_norm), config.hidden, &embedding_norm_);
  }
  planner.norm(planner.in_root(names.final_norm), config.hidden, &final_norm_, config.logits_scale);
  // A head in the file counts, whatever the config says.
  const std::string own_head = planner.head() + ".weight";
  const bool tied = config.tie_embeddings && !plan->has(own_head);
  plan->matrix(&head_, {{tied ? embeddings : own_head, config.vocab_size}}, config.hidden,
               {.rounding = rounding_of(options.head_rounding(), options.group)});
  if (config.head_bias) {
    plan->vector(&head_bias_, {{planner.head() + ".bias", config.vocab_size}});
  }
  plan->require_all_used(planner.root(), "config.json");
  planned_bytes_ = plan->bytes(MemorySpace::kDevice);
  planned_host_bytes_ = plan->bytes(MemorySpace::kHost);
  kernel_scratch_ = plan->kernel_scratch();
  if (plan->is_for_kernels()) kernel_scratch_ = std::max(kernel_scratch_, expert_scratch());
}

void Weights::embed(int32_t token, float* out) const {
  const int64_t hidden = embeddings_.shape[1];
  embeddings_.read(token * hidden, hidden, out);
  for (int64_t i = 0; i < hidden; ++i) out[i] *= embedding_scale_;
}

void Weights::embed_layers(int32_t token, float* out) const {
  const int64_t width = layer_embeddings_.shape[1];
  layer_embeddings_.read(token * width, width, out);
  for (int64_t i = 0; i < width; ++i) out[i] *= layer_embedding_scale_;
}

}  // namespace fasa
