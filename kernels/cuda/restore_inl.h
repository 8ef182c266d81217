// Rebuilds tail and protected rows of a sequence from its rows, after a truncation, a fork or an
// aborted step: a block per layer and KV head.
#pragma once

#include "kernels/cuda/rows_inl.h"

namespace fasa::cuda {

struct RestoreKernel {
  static constexpr const char* kName = "restore";
  static constexpr int kThreads = 256;

  RestoreParams params;

  // Scales of a page's keys or values, if rows are coded.
  static constexpr int64_t kSharedBytes = kPageTokens * int64_t{sizeof(float)};

  FASA_DEVICE void operator()() const {
    const CacheLayout& layout = params.step.layout;
    const int layer = simt::block_x() / layout.kv_heads;
    const int head = simt::block_x() % layout.kv_heads;
    const SequenceDesc& desc = params.step.sequences[simt::block_y()];
    if (layout.slice.dims > 0 && desc.tail != nullptr) restore_tails(desc, layer, head);
    if (desc.protected_rows != nullptr) restore_protected_rows(desc, layer, head);
  }

 private:
  FASA_DEVICE const std::byte* row_of(const SequenceDesc& desc, int layer, int head,
                                      int position) const {
    return desc.row_blocks[position / kPageTokens] +
           params.step.layout.row_offset(layer, head, position % kPageTokens);
  }

  FASA_DEVICE void restore_tails(const SequenceDesc& desc, int layer, int head) const {
    const CacheLayout& layout = params.step.layout;
    restore_tail(desc, layer, head, layout.slice.tail(),
                 params.step.slice_dims + layout.head_index(layer, head) * layout.slice.dims,
                 {0, layout.row.key_dim}, desc.tail + layout.tail_offset(layer, head));
    if (!layout.has_values()) return;
    simt::sync_block();  // the keys' scales have been read
    restore_tail(desc, layer, head, layout.values.tail(), nullptr,
                 {layout.row.key_bytes(), layout.row.value_dim},
                 desc.tail + layout.value_tail_offset(layer, head));
  }

  // The key or the value of a row.
  struct RowPart {
    int64_t in_row;  // bytes
    int dim;
  };

  FASA_DEVICE static float* scales() { return reinterpret_cast<float*>(simt::shared_memory()); }

  // Rebuilds the tail for a part of the rows; `dims` null: its first elements. The tail's order:
  // pairs of dimensions of one token side by side, in f32 single dimensions (see slice_format.h).
  // Slots without a token are zero. Each thread writes contiguous memory, so nothing has to be
  // cleared first.
  FASA_DEVICE void restore_tail(const SequenceDesc& desc, int layer, int head,
                                const SliceFormat& format, const int16_t* dims, const RowPart& part,
                                std::byte* tail) const {
    const CacheLayout& layout = params.step.layout;
    const int first = desc.start == 0 ? 0 : (desc.start - 1) / kPageTokens * kPageTokens;
    const RowDType rows = layout.row.dtype;
    for (int i = simt::thread_index(); rows.is_coded() && i < desc.start - first; i += kThreads) {
      scales()[i] = scale_of(row_of(desc, layer, head, first + i) + part.in_row, part.dim);
    }
    simt::sync_block();
    const int side = format.dtype == SliceDType::kF32 ? 1 : 2;
    const DType dtype = side == 1 ? DType::kF32 : DType::kBF16;
    const int64_t elements = format.page_bytes() / dtype_bytes(dtype);
    for (int64_t i = simt::thread_index(); i < elements; i += kThreads) {
      const int token = static_cast<int>(i / side % kPageTokens);
      const int dim = static_cast<int>(i / side / kPageTokens) * side + static_cast<int>(i % side);
      float value = 0;
      if (first + token < desc.start && dim < format.coded_dims()) {
        const RowVector from = {rows, row_of(desc, layer, head, first + token) + part.in_row,
                                rows.is_coded() ? scales()[token] : 1.0f};
        value = from.at(dims == nullptr ? dim : dims[dim]);
      }
      store(dtype, tail, i, value);
    }
  }

  // Copies the first `sinks` positions, then the last `recent` that are not among them: one warp
  // per row.
  FASA_DEVICE void restore_protected_rows(const SequenceDesc& desc, int layer, int head) const {
    const CacheLayout& layout = params.step.layout;
    const int sinks = desc.start < layout.sinks ? desc.start : layout.sinks;
    const int oldest = desc.start - layout.recent;
    const int recent = oldest < sinks ? sinks : oldest;
    for (int i = simt::warp(); i < sinks + desc.start - recent; i += simt::block_warps()) {
      const int position = i < sinks ? i : recent + i - sinks;
      copy_row(desc.protected_rows +
                   layout.protected_offset(layer, head, layout.protected_slot(position)),
               row_of(desc, layer, head, position), layout.row.bytes());
    }
  }
};

template <typename Launcher>
void start(const RestoreParams& params, const Launcher& launch) {
  const CacheLayout& layout = params.step.layout;
  launch(RestoreKernel{params}, {.x = static_cast<int>(layout.heads()),
                                 .y = params.step.count,
                                 .shared_bytes = RestoreKernel::kSharedBytes});
}

}  // namespace fasa::cuda
