// The gated delta net: the rule's kernels for decoded and prefilled tokens, then a kernel for the
// gated norm, whose sums run over the columns of several blocks.
#pragma once

#include "kernels/cuda/model/delta_blocks_inl.h"
#include "kernels/cuda/model/delta_state_inl.h"
#include "kernels/cuda/model/delta_step_inl.h"

namespace fasa::cuda {

// A warp per value head of a token.
struct DeltaNormKernel {
  static constexpr const char* kName = "delta_norm";
  static constexpr int kThreads = 128;

  DeltaState of;

  FASA_DEVICE void operator()() const {
    const LinearPart part = of.part(simt::block_y());
    const int64_t item = int64_t{simt::block_x()} * simt::block_warps() + simt::warp();
    const int heads = of.shape().value_heads;
    const int64_t token = item / heads;
    if (token >= part.tokens) return;  // true for whole warps
    const int head = static_cast<int>(item % heads);
    normalise(part.first + token, head);
    keep_open(part, token, head);
  }

 private:
  FASA_DEVICE void normalise(int64_t row, int head) const {
    const DeltaNetParams& params = of.params;
    const int64_t dim = of.shape().value_dim;
    const int64_t at = row * params.z_stride + head * dim;
    float squares = 0;
    for (int64_t i = simt::lane(); i < dim; i += simt::kWarpThreads) {
      const float o = params.o[at + i];
      squares = simt::fused(o, o, squares);
    }
    const float mean = simt::warp_sum(squares) / static_cast<float>(dim);
    const float scale = 1 / simt::square_root(mean + params.eps);
    for (int64_t i = simt::lane(); i < dim; i += simt::kWarpThreads) {
      const float z = params.z[at + i];
      const float normed = params.o[at + i] * scale * params.norm[i];
      store(of.shape().dtype, params.out, row * of.shape().value_width() + head * dim + i,
            normed * z / (1 + exponential(-z)));
    }
  }

  // The token's index in the open block, or among those that wait; below 0: it is in neither.
  FASA_DEVICE static int64_t index_of(const LinearPart& part, int64_t token) {
    if (part.decodes) return token - (part.tokens - part.drafts);
    const int64_t end = part.position + part.tokens;
    const int64_t cut = end / kLinearBlock * kLinearBlock;
    const int64_t begin = cut > part.position - part.open ? cut : part.position - part.open;
    return part.position + token - begin;
  }

  // Copies the token's inputs there. The rule's kernels have read what was there before.
  FASA_DEVICE void keep_open(const LinearPart& part, int64_t token, int head) const {
    const LinearShape& shape = of.shape();
    const int64_t index = index_of(part, token);
    if (index < 0) return;
    const DeltaState::Token from = of.token(part.first + token, head);
    std::byte* const memory = of.memory(part);
    const auto copy = [&](const void* data, int64_t at, int64_t count, std::byte* to, int64_t out) {
      for (int64_t i = simt::lane(); i < count; i += simt::kWarpThreads) {
        store(shape.dtype, to, out + i, load(shape.dtype, data, at + i));
      }
    };
    copy(from.values, from.value, shape.value_dim, memory + of.layout.values(),
         index * shape.value_width() + int64_t{head} * shape.value_dim);
    const int key_head = shape.key_head(head);
    if (head == shape.value_head(key_head, 0)) {
      copy(from.keys, from.key, shape.key_dim, memory + of.layout.keys(),
           index * shape.key_width() + int64_t{key_head} * shape.key_dim);
    }
    if (simt::lane() < 2) {
      const int gate = head + simt::lane() * shape.value_heads;
      auto* const gates = reinterpret_cast<float*>(memory + of.layout.gates());
      gates[index * 2 * shape.value_heads + gate] = from.gates[gate];
    }
  }
};

template <typename Launcher>
void start(const DeltaNetParams& params, const Launcher& launch) {
  const LinearShape& shape = params.layout->shape();
  const DeltaState of = {params, *params.layout};
  const auto parts = static_cast<int>(params.parts.size());
  const auto slices = [&](int columns) {
    return static_cast<int>((params.layout->value_stride() + columns - 1) / columns);
  };
  if (params.launch.decodes || params.launch.waits) {
    const int count = slices(DeltaStepKernel::kColumns);
    launch(DeltaStepKernel{of, count}, {.x = shape.value_heads * count,
                                        .y = parts,
                                        .shared_bytes = int64_t{sizeof(DeltaStepKernel::Shared)}});
  }
  if (params.launch.prefills) {
    // Before sm_80 a block has at most 64 KiB of shared memory.
    const int columns = DeltaBlocksKernel::kMaxColumns / (launch.compute_capability() < 80 ? 2 : 1);
    const int count = slices(columns);
    launch(DeltaBlocksKernel{of, columns, count},
           {.x = shape.value_heads * count,
            .y = parts,
            .shared_bytes = DeltaBlocksKernel::shared_bytes(shape.key_dim, columns)});
  }
  constexpr int kWarps = DeltaNormKernel::kThreads / simt::kWarpThreads;
  const int64_t items = params.launch.longest * shape.value_heads;
  launch(DeltaNormKernel{of}, {.x = static_cast<int>((items + kWarps - 1) / kWarps), .y = parts});
}

}  // namespace fasa::cuda
