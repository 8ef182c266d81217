// Stores new tokens as rows and slices. One task per (sequence, kv_head, page).

#include <algorithm>
#include <atomic>
#include <cstring>

#include "kernels/cpu/kernels.h"
#include "kernels/cpu/rows/row_codec.h"
#include "kernels/cpu/rows/row_scratch.h"
#include "kernels/kernel_work.h"
#include "kernels/slice_pack.h"
#include "runtime/base/parallel.h"

namespace fasa::cpu {
namespace {

class AppendCall {
 public:
  explicit AppendCall(const AppendParams& params)
      : params_(params),
        layout_(params.step.layout),
        tail_(layout_.slice.tail()),
        value_tail_(layout_.values.tail()) {}

  KernelWork run() {
    int pages = 0;  // in the longest sequence
    for (int i = 0; i < params_.step.count; ++i) {
      pages = std::max(pages, pages_of(params_.step.sequences[i]));
    }
    const int heads = params_.step.count * layout_.kv_heads;
    parallel_for(0, heads * pages, [&](int task) {
      append_page(params_.step.sequences[task / pages / layout_.kv_heads],
                  task / pages % layout_.kv_heads, task % pages);
    });
    return {.device_bytes = device_bytes_.load()};
  }

 private:
  static int pages_of(const SequenceDesc& sequence) {
    if (sequence.tokens == 0) return 0;
    return (sequence.end() - 1) / kPageTokens - sequence.start / kPageTokens + 1;
  }

  // The sequence's tail holds its newest page, full or not, until the next one begins. The first
  // page of the step may continue that page and the last one ends in it, so one task does both, in
  // order. Pages between them are made in the thread's scratch.
  void append_page(const SequenceDesc& sequence, int head, int page) {
    const int pages = pages_of(sequence);
    if (page >= pages || (page > 0 && page == pages - 1)) return;
    const int first = sequence.start / kPageTokens;
    if (page > 0) {
      std::byte* scratch = thread_scratch(tail_.page_bytes() + value_tail_.page_bytes());
      fill_page(sequence, head, first + page, {scratch, scratch + tail_.page_bytes()});
      return;
    }
    Tail tail;
    if (sequence.tail != nullptr) {
      tail.keys = sequence.tail + layout_.tail_offset(params_.step.layer, head);
      tail.values = sequence.tail + layout_.value_tail_offset(params_.step.layer, head);
    }
    fill_page(sequence, head, first, tail);
    if (pages > 1) fill_page(sequence, head, first + pages - 1, tail);
  }

  // Where a page's slices are assembled; those of values only if the layout has them.
  struct Tail {
    std::byte* keys = nullptr;
    std::byte* values = nullptr;
  };

  // The step's tokens of one page: rows, slices into `tail`, and the seal if the page is full.
  void fill_page(const SequenceDesc& sequence, int head, int page, const Tail& tail) {
    const int begin = std::max(sequence.start, page * kPageTokens);
    const int end = std::min(sequence.end(), (page + 1) * kPageTokens);
    if (layout_.slice.dims == 0 || sequence.tail == nullptr) {
      for (int position = begin; position < end; ++position) write_row(sequence, head, position);
      device_bytes_ += append_bytes(layout_, end - begin);
      return;
    }
    // Unwritten slots are zero, so that the tail is a function of its tokens.
    if (begin % kPageTokens == 0) {
      std::memset(tail.keys, 0, static_cast<size_t>(tail_.page_bytes()));
      std::memset(tail.values, 0, static_cast<size_t>(value_tail_.page_bytes()));
    }
    const int16_t* dims = params_.step.slice_dims + int64_t{head} * layout_.slice.dims;
    for (int position = begin; position < end; ++position) {
      const std::byte* row = write_row(sequence, head, position);
      const int slot = position % kPageTokens;
      const RowElements key = row_key(layout_.row, row);
      write_tail_token(tail_, dims, key.dtype, key.data, slot, tail.keys);
      if (!layout_.has_values()) continue;
      const RowElements value = row_value(layout_.row, row);
      write_tail_token(value_tail_, nullptr, value.dtype, value.data, slot, tail.values);
    }
    uint64_t bytes = append_bytes(layout_, end - begin);
    if (end % kPageTokens == 0) {
      seal(head, tail, sequence.slice_blocks[page]);
      bytes += seal_bytes(layout_);
    }
    device_bytes_ += bytes;
  }

  void seal(int head, const Tail& tail, std::byte* block) const {
    const int layer = params_.step.layer;
    float* bases = reinterpret_cast<float*>(block);
    seal_page(layout_.slice, tail.keys, block + layout_.slice_offset(layer, head),
              bases + layout_.head_index(layer, head));
    if (!layout_.has_values()) return;
    seal_page(layout_.values, tail.values, block + layout_.value_offset(layer, head),
              reinterpret_cast<float*>(block + layout_.value_base_offset(layer, head)));
  }

  const std::byte* write_row(const SequenceDesc& sequence, int head, int position) const {
    const int64_t row_bytes = layout_.row.bytes();
    std::byte* home = nullptr;
    if (sequence.protected_rows != nullptr && sequence.is_protected(layout_, position)) {
      home = sequence.protected_rows +
             layout_.protected_offset(params_.step.layer, head, layout_.protected_slot(position));
    }
    std::byte* row = home;
    if (sequence.access == RowAccess::kLocal) {
      row = sequence.row_blocks[position / kPageTokens] +
            layout_.row_offset(params_.step.layer, head, position % kPageTokens);
    } else if (sequence.mode == StepMode::kPrefill) {
      row = params_.step.write_back_row(sequence, head, position);
    }
    if (params_.in_place()) return row;
    const int64_t token = int64_t{sequence.first_token} + position - sequence.start;
    cpu::write_row(layout_.row, params_.k, params_.v, token, head, row);
    if (home != nullptr && home != row) std::memcpy(home, row, static_cast<size_t>(row_bytes));
    std::byte* device = sequence.device_row_block(position / kPageTokens);
    if (device != nullptr) {
      device += layout_.row_offset(params_.step.layer, head, position % kPageTokens);
      std::memcpy(device, row, static_cast<size_t>(row_bytes));
    }
    return row;
  }

  const AppendParams& params_;
  const CacheLayout& layout_;
  const SliceFormat tail_;
  const SliceFormat value_tail_;
  std::atomic<uint64_t> device_bytes_{0};
};

}  // namespace

template <>
KernelWork run(const AppendParams& params) {
  return AppendCall(params).run();
}

}  // namespace fasa::cpu
