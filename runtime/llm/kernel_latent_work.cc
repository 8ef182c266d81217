#include "runtime/llm/kernel_latent_work.h"

namespace fasa {

void KernelLatentWork::project(const Matrix& matrix, const std::byte* x, float* y) const {
  projection_.enqueue(matrix, x, step_.runs, matrix.outputs(), y, tag_);
}

// The heads' matrices are of one shape and were placed by turns: equally far from each other.
void KernelLatentWork::project_heads(const std::vector<Matrix>& matrices, const std::byte* x,
                                     float* y) const {
  const Matrix& linear = matrices.front();
  const auto heads = static_cast<int64_t>(matrices.size());
  const int64_t apart = heads == 1 ? 0 : matrices[1].data() - matrices[0].data();
  parts_.device.enqueue(ProjectParams{.dtype = parts_.dtype,
                                      .rows = step_.tokens,
                                      .inputs = linear.inputs(),
                                      .columns = linear.outputs(),
                                      .y_stride = heads * linear.outputs(),
                                      .x_stride = heads * linear.inputs(),
                                      .batch = heads,
                                      .x_step = linear.inputs(),
                                      .weights_step = apart / dtype_bytes(parts_.dtype),
                                      .y_step = linear.outputs(),
                                      .x = x,
                                      .weights = matrices.front().data(),
                                      .y = y,
                                      .scratch = projection_.scratch().product},
                        parts_.stream, tag_);
}

void KernelLatentWork::convert(const HeadsParams& heads) const {
  HeadsParams params = heads;
  params.tokens = step_.tokens;
  params.dtype = parts_.dtype;
  parts_.device.enqueue(params, parts_.stream, tag_);
}

HeadsParams KernelLatentWork::rotated(int heads) const {
  HeadsParams params;
  params.heads = params.query_heads = heads;
  params.dim = params.rotary_dims = parts_.config.rotary_dims;
  params.rotary_layout = RotaryLayout::kInterleaved;
  params.cosines = parts_.activations.cosines();
  params.sines = parts_.activations.sines();
  return params;
}

// What the queries are projected from.
const std::byte* KernelLatentWork::query_input(const LatentWeights& weights) const {
  const Activations& activations = parts_.activations;
  const int rank = parts_.config.mla.query_rank;
  if (rank == 0) return activations.input();
  project(weights.query_down, activations.input(), activations.result());
  convert({.heads = 1,
           .query_heads = 1,
           .dim = rank,
           .x = activations.result(),
           .x_stride = rank,
           .query_norm = params_of(weights.query_norm),
           .out = activations.head_input()});
  return activations.head_input();
}

void KernelLatentWork::queries(const LatentWeights& weights, std::byte* out, int64_t stride) const {
  const ModelConfig& config = parts_.config;
  const Activations& activations = parts_.activations;
  const int plain = config.mla.plain;
  const int width = plain + config.rotary_dims;  // of a head's projection
  project(weights.query, query_input(weights), activations.result());
  convert({.heads = config.query_heads,
           .dim = plain,
           .x = activations.result(),
           .x_stride = int64_t{config.query_heads} * width,
           .x_head_stride = width,
           .out = activations.head_input()});
  HeadsParams turned = rotated(config.query_heads);
  turned.x = activations.result() + plain;
  turned.x_stride = int64_t{config.query_heads} * width;
  turned.x_head_stride = width;
  turned.out = out;
  turned.out_stride = stride;
  turned.out_head_stride = config.head_dim;
  convert(turned);
  project_heads(weights.absorb, activations.head_input(), activations.head_result());
  convert({.heads = config.query_heads,
           .dim = config.mla.latent,
           .x = activations.head_result(),
           .x_stride = int64_t{config.query_heads} * config.mla.latent,
           .out = out + config.rotary_dims * dtype_bytes(parts_.dtype),
           .out_stride = stride,
           .out_head_stride = config.head_dim});
}

void KernelLatentWork::keys(const LatentWeights& weights, std::byte* out, int64_t stride) const {
  const ModelConfig& config = parts_.config;
  const Activations& activations = parts_.activations;
  project(weights.key_down, activations.input(), activations.result());
  HeadsParams turned = rotated(1);
  turned.x = activations.result() + config.mla.latent;
  turned.x_stride = config.head_dim;
  turned.out = out;
  turned.out_stride = stride;
  convert(turned);
  convert({.heads = 1,
           .query_heads = 1,
           .dim = config.mla.latent,
           .x = activations.result(),
           .x_stride = config.head_dim,
           .query_norm = params_of(weights.key_norm),
           .out = out + config.rotary_dims * dtype_bytes(parts_.dtype),
           .out_stride = stride});
}

void KernelLatentWork::values(const LatentWeights& weights) const {
  const ModelConfig& config = parts_.config;
  const Activations& activations = parts_.activations;
  project_heads(weights.expand, activations.attended(), activations.head_result());
  convert({.heads = config.query_heads,
           .dim = config.mla.value,
           .x = activations.head_result(),
           .x_stride = int64_t{config.query_heads} * config.mla.value,
           .out = activations.input()});
}

}  // namespace fasa
