// The memory layout of the KV cache. One definition, so that kernels of every device, the stores
// and the tests agree byte for byte.
//
//   row         whole key, then value, of one token and KV head, padded to 64 bytes, see
//               row_format.h
//   row block   one page of rows for all layers:    [layer][kv_head][kPageTokens][row_bytes]
//   slice page  dominant dimensions of one page:    codes (+ parameters), see slice_format.h
//   value page  values of one page in codes:        a slice page of token order, slice_format.h
//   slice block one page of slices for all layers:  header f32 [layer][kv_head] padded to 64 bytes,
//                                                   then [layer][kv_head][page_bytes],
//                                                   then the same for value pages, if any
//   tail        slices of the newest, unsealed page of a sequence: [layer][kv_head][tail_bytes],
//               then its values likewise, if any
//   protected   rows of the first `sinks` and the newest `recent` tokens of a sequence, and of what
//               a decode step adds to them:
//               [layer][kv_head][sinks + recent + kMaxDecoded - 1][row_bytes]
//   hot rows    fetched rows that stay on the device, `slots` a head: rows
//               [layer][kv_head][slots][row_bytes], and their table
//               [layer][kv_head]{position[slots], last_use[slots]}, see hot_slots.h. Layers
//               that share the rows of the last one (CacheLayout::sharers) have their own: their
//               sets differ, and a table for all would evict what the next of them needs
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/row_format.h"
#include "kernels/slice_format.h"

namespace fasa {

inline constexpr int kTileTokens = 32;  // FAC works on fixed tiles of the position-sorted set
// The most tokens of a sequence with rows over the link in one decode step.
inline constexpr int kMaxDecoded = 16;

// Plain data, passed to kernels by value.
struct CacheLayout {
  int layers = 0;
  int kv_heads = 0;
  int gqa_group = 1;  // query heads per KV head
  RowFormat row;
  SliceFormat slice;
  SliceFormat values;  // codes of whole values, for a low-bit set; dims 0 = none
  int sinks = 0;
  int recent = 0;  // >= 1: the newest token is always protected
  // Further layers, which attend to what the last one of `layers` stores.
  int sharers = 0;

  constexpr int query_heads() const { return kv_heads * gqa_group; }
  constexpr int64_t head_index(int layer, int kv_head) const {
    return int64_t{layer} * kv_heads + kv_head;
  }
  constexpr int64_t heads() const { return int64_t{layers} * kv_heads; }

  constexpr int64_t row_head_bytes() const { return kPageTokens * row.bytes(); }
  constexpr int64_t row_layer_bytes() const { return kv_heads * row_head_bytes(); }
  constexpr int64_t row_block_bytes() const { return layers * row_layer_bytes(); }
  constexpr int64_t row_offset(int layer, int kv_head, int slot) const {
    return head_index(layer, kv_head) * row_head_bytes() + slot * row.bytes();
  }

  constexpr int64_t slice_header_bytes() const {
    return align_up(heads() * int64_t{sizeof(float)});
  }
  constexpr int64_t slice_offset(int layer, int kv_head) const {
    return slice_header_bytes() + head_index(layer, kv_head) * slice.page_bytes();
  }
  constexpr bool has_values() const { return values.dims > 0; }
  constexpr int64_t value_base_offset(int layer, int kv_head) const {
    return slice_offset(layers, 0) + head_index(layer, kv_head) * int64_t{sizeof(float)};
  }
  constexpr int64_t value_offset(int layer, int kv_head) const {
    return slice_offset(layers, 0) + slice_header_bytes() +
           head_index(layer, kv_head) * values.page_bytes();
  }
  constexpr int64_t slice_block_bytes() const {
    return has_values() ? value_offset(layers, 0) : slice_offset(layers, 0);
  }

  constexpr int64_t tail_offset(int layer, int kv_head) const {
    return head_index(layer, kv_head) * slice.tail().page_bytes();
  }
  constexpr int64_t value_tail_offset(int layer, int kv_head) const {
    return tail_offset(layers, 0) + head_index(layer, kv_head) * values.tail().page_bytes();
  }
  constexpr int64_t tail_bytes() const { return value_tail_offset(layers, 0); }
  // The same layout with rows only: no slices and no value codes.
  constexpr CacheLayout without_slices() const {
    CacheLayout rows = *this;
    rows.slice = {};
    rows.values = {};
    return rows;
  }

  constexpr int protected_tokens() const { return sinks + recent; }  // of each set
  constexpr int recent_slots() const { return recent + kMaxDecoded - 1; }
  constexpr int protected_slots() const { return sinks + recent_slots(); }
  // The slot of a protected position; the caller knows that it is one.
  constexpr int protected_slot(int position) const {
    return position < sinks ? position : sinks + position % recent_slots();
  }
  constexpr int64_t protected_offset(int layer, int kv_head, int slot) const {
    return (head_index(layer, kv_head) * protected_slots() + slot) * row.bytes();
  }
  constexpr int64_t protected_bytes() const { return heads() * protected_slots() * row.bytes(); }

  // For `slots` hot rows per head: SequenceDesc::hot_rows. `layer`: StepParams::attending_layer().
  constexpr int64_t hot_heads() const { return int64_t{layers + sharers} * kv_heads; }
  constexpr int64_t hot_offset(int layer, int kv_head, int slot, int slots) const {
    return (head_index(layer, kv_head) * slots + slot) * row.bytes();
  }
  constexpr int64_t hot_bytes(int slots) const { return hot_heads() * slots * row.bytes(); }
  // Index of the first int32 of a head's hot table.
  constexpr int64_t hot_table_index(int layer, int kv_head, int slots) const {
    return head_index(layer, kv_head) * hot_table_stride(slots);
  }
  static constexpr int64_t hot_table_stride(int slots) { return 2 * int64_t{slots}; }
  constexpr int64_t hot_table_bytes(int slots) const {
    return hot_heads() * hot_table_stride(slots) * int64_t{sizeof(int32_t)};
  }
  // Pages whose rows take no more memory than `slots` hot rows, their table and protected rows.
  constexpr int64_t copied_pages(int slots) const {
    const int64_t block = row_block_bytes();
    return block == 0 ? 0 : (hot_bytes(slots) + hot_table_bytes(slots) + protected_bytes()) / block;
  }
};

}  // namespace fasa
