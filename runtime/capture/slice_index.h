// The slices of one sequence without a Runtime, in host memory: finds the tokens that a selection
// over a slice format takes. For recordings and studies; works in the caller's oneTBB arena.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/layout.h"
#include "kernels/params.h"
#include "runtime/base/geometry.h"
#include "runtime/base/tensor_view.h"

namespace fasa {

struct SliceIndexShape {
  RowDType row_dtype = DType::kBF16;  // keys are rounded to it first, like rows
  SliceDType slice_dtype = SliceDType::kInt2;
  int chunks = 0;       // FCs of a head
  int fine_chunks = 0;  // of these, in int4
  int sinks = 0;
  int recent = 1;
  int64_t tokens = 0;       // of the longest sequence
  int32_t largest_set = 0;  // limit of select()
};

// All memory is allocated at construction: append() and select() do not throw for memory.
class SliceIndex {
 public:
  // `ranked_dims`: key dimensions of each head's FCs, best first, [layers][kv_heads][FCs], with at
  // least shape.chunks FCs; the first ones are used.
  SliceIndex(const Geometry& geometry, const SliceIndexShape& shape,
             const std::vector<int16_t>& ranked_dims);

  // k, v [tokens, kv_heads, dim], rotated, of positions start, start + 1, ...; empty if the layer
  // shares those of another.
  void append(int layer, ConstTensorView k, ConstTensorView v, int64_t start);
  // Selects at most `tokens` tokens for the query at `position`, which attends to itself and all
  // earlier tokens: q [1, query_heads, key_dim], rotated. Ascending positions, one span per KV
  // head, valid until the next call.
  void select(int layer, ConstTensorView q, int64_t position, int32_t tokens);
  std::span<const int32_t> set(int kv_head) const {
    const auto head = static_cast<size_t>(kv_head);
    return std::span(sets_).subspan(head * static_cast<size_t>(largest_set_),
                                    static_cast<size_t>(selected_sizes_[head]));
  }

 private:
  struct alignas(64) Line {
    std::byte bytes[64];
  };
  using Memory = std::vector<Line>;
  static Memory memory(int64_t bytes) { return Memory(static_cast<size_t>((bytes + 63) / 64)); }

  StepParams step_params(int layer, const SequenceDesc& sequence) const;
  SequenceDesc describe(int64_t start, int tokens) const;

  CacheLayout layout_;
  std::vector<int> windows_;
  std::vector<int> kv_layers_;  // Geometry::kv_layer of each layer
  std::vector<float> slopes_;
  float score_cap_ = 0;
  int32_t largest_set_;
  std::vector<int16_t> dims_;
  Memory slices_;
  Memory tail_;
  Memory row_block_;  // shared by all pages: rows are not kept
  std::vector<std::byte*> slice_blocks_;
  std::vector<std::byte*> row_blocks_;
  std::vector<int32_t> sets_;
  std::vector<int32_t> selected_sizes_;
};

}  // namespace fasa
