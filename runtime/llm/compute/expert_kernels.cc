#include "runtime/llm/compute/expert_kernels.h"

#include <algorithm>

#include "runtime/llm/compute/packed_scratch.h"

namespace fasa {
namespace {

// Distance between two experts' vectors, in elements. Experts are allocated in turn, equally
// spaced.
int64_t bias_step(const ExpertLayerWeights& layer, const float* ExpertWeights::*bias) {
  if (layer.routed.size() < 2) return 0;
  return layer.routed[1].*bias - layer.routed[0].*bias;
}

// The same distances for one part of a matrix.
struct PartSteps {
  int64_t bytes = 0;
  int64_t places = 0;

  static PartSteps of(const ExpertLayerWeights& layer, Matrix ExpertWeights::*matrix, size_t part) {
    if (layer.routed.size() < 2) return {};
    const Matrix::Part& first = (layer.routed[0].*matrix).parts()[part];
    const Matrix::Part& second = (layer.routed[1].*matrix).parts()[part];
    return {second.data - first.data, first.order == nullptr ? 0 : second.order - first.order};
  }
};

}  // namespace

void ExpertKernels::run(const ExpertLayerWeights& layer, const std::byte* router_input,
                        RowRuns runs) const {
  sink_.project(layer.router, router_input, runs, layer.router.outputs(),
                parts_.activations.routed());
  choose(layer, rows_of(runs));
  int64_t first = 0;
  for (const RowRun& run : runs) {
    run_experts(layer, first, run);
    first += run.rows;
  }
  if (layer.shared.down.outputs() > 0) add_shared(layer, runs);
}

void ExpertKernels::choose(const ExpertLayerWeights& layer, int64_t tokens) const {
  const ExpertShape& shape = parts_.config.experts;
  const ExpertSpace& space = parts_.activations.experts();
  enqueue(ChooseExpertsParams{.tokens = tokens,
                              .count = shape.count,
                              .chosen = shape.chosen,
                              .groups = shape.groups,
                              .chosen_groups = shape.chosen_groups,
                              .normalised = shape.normalised,
                              .sigmoid = shape.sigmoid,
                              .scale = shape.scale,
                              .logits = parts_.activations.routed(),
                              .bias = layer.router_bias,
                              .scales = layer.scale,
                              .correction = layer.router_correction,
                              .experts = space.chosen,
                              .weights = space.weights});
}

ExpertPairs ExpertKernels::pairs_of(int64_t tokens) const {
  const ExpertShape& shape = parts_.config.experts;
  const ExpertSpace& space = parts_.activations.experts();
  return {.tokens = tokens,
          .chosen = shape.chosen,
          .count = shape.count,
          .experts = space.experts,
          .rows = space.rows,
          .first = space.first,
          .places = space.places};
}

void ExpertKernels::run_experts(const ExpertLayerWeights& layer, int64_t first,
                                const RowRun& run) const {
  const Activations& activations = parts_.activations;
  const ExpertPairs pairs = pairs_of(run.rows);
  const int64_t hidden = parts_.config.hidden;
  const int64_t chosen = first * pairs.chosen;
  const std::byte* const input = activations.input() + first * hidden * dtype_bytes(parts_.dtype);
  enqueue(ArrangeExpertsParams{.chosen = activations.experts().chosen + chosen, .pairs = pairs});
  project(layer, {&ExpertWeights::gate_up, input, PairInput::kToken, run.mode}, pairs);
  activate(layer, pairs);
  project(layer, {&ExpertWeights::down, activations.activated(), PairInput::kPair, run.mode},
          pairs);
  enqueue(MixExpertsParams{.pairs = pairs,
                           .size = hidden,
                           .weights = activations.experts().weights + chosen,
                           .results = activations.result(),
                           .bias = layer.routed.front().down_bias,
                           .bias_step = bias_step(layer, &ExpertWeights::down_bias),
                           .mixed = activations.mixed() + first * hidden});
}

void ExpertKernels::project(const ExpertLayerWeights& layer, const Product& product,
                            const ExpertPairs& pairs) const {
  const Matrix& matrix = layer.routed.front().*product.matrix;
  for (size_t i = 0; i < matrix.parts().size(); ++i) {
    const Matrix::Part& part = matrix.parts()[i];
    if (std::holds_alternative<PackedLinear>(part.linear)) {
      const auto by_phase =
          product.mode == StepMode::kDecode ? &ExpertKernels::decode : &ExpertKernels::prefill;
      (this->*by_phase)(layer, i, product, pairs);
      continue;
    }
    const int64_t step = PartSteps::of(layer, product.matrix, i).bytes;
    enqueue(ProjectExpertsParams{.product = {.dtype = parts_.dtype,
                                             .rows = pairs.pairs(),
                                             .inputs = matrix.inputs(),
                                             .columns = part.outputs(),
                                             .y_stride = matrix.outputs(),
                                             .weights_step = step / dtype_bytes(parts_.dtype),
                                             .x = product.x,
                                             .weights = part.data,
                                             .y = parts_.activations.result() + part.first,
                                             .apart = product.mode == StepMode::kDecode},
                                 .pairs = pairs,
                                 .input = product.input,
                                 .experts = pairs.count});
  }
}

void ExpertKernels::decode(const ExpertLayerWeights& layer, size_t index, const Product& product,
                           const ExpertPairs& pairs) const {
  const Matrix::Part& part = (layer.routed.front().*product.matrix).parts()[index];
  const auto& linear = std::get<PackedLinear>(part.linear);
  const PartSteps steps = PartSteps::of(layer, product.matrix, index);
  enqueue(ProjectPackedExpertsParams{
      .product = {.dtype = parts_.dtype,
                  .rows = pairs.pairs(),
                  .columns = part.outputs(),
                  .y_stride = linear.y_stride(),
                  .weights = packed_weights(linear, part.data, part.order),
                  .x = product.x,
                  .y = parts_.activations.result() + part.first,
                  .scratch = scratch_},
      .panels_step = steps.bytes,
      .order_step = steps.places,
      .pairs = pairs,
      .input = product.input});
}

// Unpacks as many experts at once as fit a slab, or one expert slab by slab.
void ExpertKernels::prefill(const ExpertLayerWeights& layer, size_t index, const Product& product,
                            const ExpertPairs& pairs) const {
  const Matrix::Part& part = (layer.routed.front().*product.matrix).parts()[index];
  const auto& linear = std::get<PackedLinear>(part.linear);
  const PartSteps steps = PartSteps::of(layer, product.matrix, index);
  const int64_t columns_at_once = slab_columns(linear);
  const int64_t at_once = slab_matrices(linear, pairs.count);
  for (int64_t expert = 0; expert < pairs.count; expert += at_once) {
    const int64_t experts = std::min(at_once, pairs.count - expert);
    const Matrix::Part& first_part =
        (layer.routed[static_cast<size_t>(expert)].*product.matrix).parts()[index];
    for (int64_t first = 0; first < part.outputs(); first += columns_at_once) {
      const int64_t columns = std::min(columns_at_once, part.outputs() - first);
      enqueue(UnpackParams{.dtype = parts_.dtype,
                           .first = first,
                           .columns = columns,
                           .weights = packed_weights(linear, first_part.data, first_part.order),
                           .plain = scratch_,
                           .batch = experts,
                           .panels_step = steps.bytes,
                           .order_step = steps.places,
                           .rows = pairs.first + expert});
      enqueue(
          ProjectExpertsParams{.product = {.dtype = parts_.dtype,
                                           .rows = pairs.pairs(),
                                           .inputs = linear.inputs(),
                                           .columns = columns,
                                           .y_stride = linear.y_stride(),
                                           .weights_step = columns * linear.inputs(),
                                           .x = product.x,
                                           .weights = scratch_,
                                           .y = parts_.activations.result() + part.first + first},
                               .pairs = pairs,
                               .input = product.input,
                               .first_expert = static_cast<int>(expert),
                               .experts = static_cast<int>(experts)});
    }
  }
}

void ExpertKernels::activate(const ExpertLayerWeights& layer, const ExpertPairs& pairs) const {
  const ExpertShape& shape = parts_.config.experts;
  enqueue(ActivateParams{.tokens = pairs.pairs(),
                         .size = shape.intermediate,
                         .function = parts_.config.activation,
                         .clamped = shape.clamped,
                         .interleaved = layer.interleaved,
                         .x = parts_.activations.result(),
                         .bias = layer.routed.front().gate_up_bias,
                         .bias_rows = pairs.experts,
                         .bias_step = bias_step(layer, &ExpertWeights::gate_up_bias),
                         .dtype = parts_.dtype,
                         .out = parts_.activations.activated()});
}

void ExpertKernels::add_shared(const ExpertLayerWeights& layer, RowRuns runs) const {
  const Activations& activations = parts_.activations;
  const ExpertWeights& shared = layer.shared;
  const float* shares = nullptr;
  if (layer.shared_gate.outputs() > 0) {  // the router's logits are no longer needed
    sink_.project(layer.shared_gate, activations.input(), runs, 1, activations.routed());
    shares = activations.routed();
  }
  const auto project = [&](const Matrix& matrix, const std::byte* x) {
    sink_.project(matrix, x, runs, matrix.outputs(), activations.result());
  };
  project(shared.gate_up, activations.input());
  enqueue(ActivateParams{.tokens = rows_of(runs),
                         .size = shared.gate_up.outputs() / 2,
                         .function = parts_.config.activation,
                         .x = activations.result(),
                         .bias = shared.gate_up_bias,
                         .shares = shares,
                         .dtype = parts_.dtype,
                         .out = activations.activated()});
  project(shared.down, activations.activated());
  enqueue(AddNormParams{.rows = rows_of(runs),
                        .size = parts_.config.hidden,
                        .residual = activations.mixed(),
                        .addend = activations.result(),
                        .bias = shared.down_bias,
                        .norm = {},
                        .dtype = DType::kF32,
                        .out = activations.mixed()});
}

}  // namespace fasa
