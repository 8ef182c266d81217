#include "runtime/llm/compute/latent_work.h"

#include <algorithm>
#include <span>

namespace fasa {
namespace {

std::span<const Matrix> part_of(const std::vector<Matrix>& heads, int first, int count) {
  return std::span(heads).subspan(static_cast<size_t>(first), static_cast<size_t>(count));
}

}  // namespace

template <typename Part>
void LatentWork::for_heads(const Part& part) const {
  const int heads = parts_.config.query_heads;
  const int at_once = sink_.heads_at_once(heads);
  for (int first = 0; first < heads; first += at_once) {
    part(first, std::min(at_once, heads - first));
  }
}

void LatentWork::convert(HeadsParams heads) const {
  heads.tokens = tokens_;
  heads.dtype = parts_.dtype;
  sink_.run(heads);
}

HeadsParams LatentWork::rotated(int heads) const {
  HeadsParams params;
  params.heads = params.query_heads = heads;
  params.dim = params.rotary_dims = parts_.config.rotary_dims;
  params.rotary_layout = RotaryLayout::kInterleaved;
  params.cosines = parts_.activations.cosines();
  params.sines = parts_.activations.sines();
  return params;
}

// Input of the query projection.
const std::byte* LatentWork::query_input(const LatentWeights& weights) const {
  const Activations& activations = parts_.activations;
  const int rank = parts_.config.mla.query_rank;
  if (rank == 0) return activations.input();
  project(weights.query_down, activations.input(), activations.result());
  convert({.heads = 1,
           .query_heads = 1,
           .dim = rank,
           .x = activations.result(),
           .x_stride = rank,
           .query_norm = weights.query_norm,
           .out = activations.head_input()});
  return activations.head_input();
}

void LatentWork::queries(const LatentWeights& weights, std::byte* out, int64_t stride) const {
  const ModelConfig& config = parts_.config;
  const Activations& activations = parts_.activations;
  const int plain = config.mla.plain;
  const int latent = config.mla.latent;
  const int width = plain + config.rotary_dims;  // of one head's projection
  const int64_t x_stride = int64_t{config.query_heads} * width;
  project(weights.query, query_input(weights), activations.result());
  HeadsParams turned = rotated(config.query_heads);
  turned.x = activations.result() + plain;
  turned.x_stride = x_stride;
  turned.x_head_stride = width;
  turned.out = out;
  turned.out_stride = stride;
  turned.out_head_stride = config.head_dim;
  convert(turned);
  for_heads([&](int first, int heads) {
    convert({.heads = heads,
             .dim = plain,
             .x = activations.result() + int64_t{first} * width,
             .x_stride = x_stride,
             .x_head_stride = width,
             .out = activations.head_input()});
    sink_.project_heads(part_of(weights.absorb, first, heads), activations.head_input(),
                        int64_t{heads} * plain, runs_, activations.head_result());
    const int64_t at = int64_t{first} * config.head_dim + config.rotary_dims;
    convert({.heads = heads,
             .dim = latent,
             .x = activations.head_result(),
             .x_stride = int64_t{heads} * latent,
             .out = out + at * dtype_bytes(parts_.dtype),
             .out_stride = stride,
             .out_head_stride = config.head_dim});
  });
}

void LatentWork::keys(const LatentWeights& weights, std::byte* out, int64_t stride) const {
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
           .query_norm = weights.key_norm,
           .out = out + config.rotary_dims * dtype_bytes(parts_.dtype),
           .out_stride = stride});
}

void LatentWork::values(const LatentWeights& weights) const {
  const ModelConfig& config = parts_.config;
  const Activations& activations = parts_.activations;
  const int64_t latent = config.mla.latent;
  const int64_t value = config.mla.value;
  const int64_t element = dtype_bytes(parts_.dtype);
  for_heads([&](int first, int heads) {
    sink_.project_heads(part_of(weights.expand, first, heads),
                        activations.attended() + first * latent * element,
                        config.query_heads * latent, runs_, activations.head_result());
    convert({.heads = heads,
             .dim = config.mla.value,
             .x = activations.head_result(),
             .x_stride = heads * value,
             .out = activations.input() + first * value * element,
             .out_stride = config.query_heads * value});
  });
}

}  // namespace fasa
