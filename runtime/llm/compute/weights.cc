#include "runtime/llm/compute/weights.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "runtime/base/error.h"
#include "runtime/llm/compute/packed_scratch.h"
#include "runtime/llm/compute/weight_planner.h"
#include "runtime/llm/config/mtp_config.h"

namespace fasa {
namespace {

WeightLayout layout_of(PanelOrder order, DType dtype, const WeightOptions& options) {
  const bool int8 = options.activations == DecodeActivations::kInt8;
  return {.dtype = dtype,
          .order = order,
          .activations = int8 ? PackedActivations::kInt8 : PackedActivations::kModel};
}

std::string hex_row(const WeightView& matrix, int64_t index) {
  const int64_t columns = matrix.shape[1];
  std::vector<uint16_t> row(static_cast<size_t>(columns));
  matrix.read_bf16(index * columns, columns, row.data());
  std::string text;
  for (const uint16_t bits : row) text += fmt::format("{:04x}", bits);
  return text;
}

}  // namespace

Weights::Weights(std::unique_ptr<WeightSource> source, const ModelConfig& config)
    : files_(std::move(source)),
      embedding_scale_(config.embedding_scale),
      chosen_experts_(static_cast<size_t>(config.experts.chosen)),
      layers_(static_cast<size_t>(config.layers)) {}

Weights::Weights(std::unique_ptr<WeightSource> source, const ModelConfig& config, DType dtype,
                 Device& device, StreamView stream, const WeightOptions& options,
                 const Weights* trunk)
    : Weights(std::move(source), config) {
  const PanelOrder order = device.traits().model_calls ? PanelOrder::kPlain : PanelOrder::kPacked;
  WeightPlan plan(*files_, layout_of(order, dtype, options));
  lay_out(config, options, &plan);
  WeightPlan::Loaded loaded = plan.load(device, stream);
  memory_ = std::move(loaded.device);
  host_memory_ = std::move(loaded.host);
  if (trunk != nullptr && head_.outputs() == 0) head_ = trunk->head();
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
         {&layer.linear.input, &layer.linear.gates, &layer.output_gate, &layer.qkv, &layer.output,
          &layer.gate_up, &layer.down, &layer.input.gate, &layer.input.projection, &mla.query_down,
          &mla.query, &mla.key_down}) {
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

// The layers, and the first rows of their keys.
void Weights::lay_out_layers(const WeightPlanner& planner, const ModelConfig& config,
                             WeightPlan* plan) {
  for (int layer = 0; layer < config.layers; ++layer) {
    planner.layer(layer, &layers_[static_cast<size_t>(layer)]);
    if (plan->is_for_kernels()) require_alike(layer, *plan);
    if (config.is_linear(layer)) continue;
    const WeightPlan::Part key = planner.first_key(layer);
    const int64_t shape[] = {key.of == 0 ? key.rows : key.of, config.hidden};
    key_rows_.push_back(hex_row(files_->require(key.tensor, shape), key.first));
  }
}

void Weights::count_bytes(const WeightPlan& plan) {
  planned_bytes_ = plan.bytes(MemorySpace::kDevice);
  planned_host_bytes_ = plan.bytes(MemorySpace::kHost);
  kernel_scratch_ = plan.kernel_scratch();
  if (plan.is_for_kernels()) kernel_scratch_ = std::max(kernel_scratch_, expert_scratch());
}

void Weights::lay_out_mtp_head(const ModelConfig& config, const WeightOptions& options,
                               WeightPlan* plan) {
  const MtpNames names = MtpNames::find(*files_, config);
  const WeightPlanner planner(config, options, plan, names.layer);
  const int64_t table[] = {config.vocab_size, config.hidden};
  embeddings_ = plan->used(names.embeddings + ".weight", table);
  planner.norm(names.token_norm, config.hidden, &mtp_.token_norm);
  planner.norm(names.state_norm, config.hidden, &mtp_.state_norm);
  plan->matrix(&mtp_.projection, {{names.projection + ".weight", config.hidden}},
               2 * int64_t{config.hidden},
               {.rounding = rounding_of(options.rounding, options.group)});
  lay_out_layers(planner, config, plan);
  planner.norm(names.final_norm, config.hidden, &final_norm_, config.logits_scale);
  if (!names.output.empty()) {
    plan->matrix(&head_, {{names.output + ".weight", config.vocab_size}}, config.hidden,
                 {.rounding = rounding_of(options.head_rounding(), options.group)});
  }
  plan->require_all_used(names.prefix, {});
  count_bytes(*plan);
}

void Weights::lay_out(const ModelConfig& config, const WeightOptions& options, WeightPlan* plan) {
  if (config.is_mtp_head()) return lay_out_mtp_head(config, options, plan);
  const WeightPlanner planner(config, options, plan);
  const TensorNames& names = config.family->names;
  const std::string embeddings = planner.in_root(names.embeddings) + ".weight";
  const int64_t table[] = {config.vocab_size, config.hidden};
  embeddings_ = plan->used(embeddings, table);
  lay_out_layers(planner, config, plan);
  if (config.layer_input > 0) {
    const int64_t width = config.layer_inputs();
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
  std::vector<std::string> ignored;
  for (int i = config.layers; i < config.layers + config.predicting_layers; ++i) {
    ignored.push_back(fmt::format("{}{}.{}.", planner.root(), names.layers, i));
  }
  if (config.family->mtp_head) ignored.emplace_back(kMtpRoot);
  plan->require_all_used(planner.root(), ignored);
  count_bytes(*plan);
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
