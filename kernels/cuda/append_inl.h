// Appends new tokens as rows and slices. A block processes a page of one (sequence, KV head): one
// warp per row, then the page's tail, then, if the page is full, its codes. The tail holds the
// newest page, full or not, until the next one begins. The step's first page may continue the tail
// and its last page ends in it, so one block does both, in order. Pages between them never use the
// tail: their codes are made from the rows just written, rounded as the tail rounds.
#pragma once

#include "kernels/cuda/encode_row_inl.h"
#include "kernels/slice_codec_inl.h"

namespace fasa::cuda {

// Source of a page of values to be coded: the tail, or rows.
struct SealSource {
  SliceFormat tail;
  const std::byte* page;  // of the tail, or null
  const std::byte* rows;  // of the page, contiguous; from the coded part of a row on
  const int16_t* dims;    // null: the first ones
  RowFormat row;
  const float* scales;  // of the page's rows, where they are coded

  FASA_DEVICE float value(int dim, int token) const {
    if (tail.dtype == SliceDType::kF32) {
      if (rows != nullptr) return from_row(dim, token);
      return reinterpret_cast<const float*>(page)[dim * kPageTokens + token];
    }
    const auto bits = rows != nullptr
                          ? bf16_from_f32(from_row(dim, token))
                          : reinterpret_cast<const uint16_t*>(page)[pair_at(dim, token)];
    return simt::float_of(uint32_t{bits} << 16);
  }
  FASA_DEVICE float from_row(int dim, int token) const {
    const RowVector of = {row.dtype, rows + token * row.bytes(),
                          row.dtype.is_coded() ? scales[token] : 1.0f};
    return of.at(dims == nullptr ? dim : dims[dim]);
  }
  FASA_DEVICE static int pair_at(int dim, int token) {
    return (dim / 2 * kPageTokens + token) * 2 + dim % 2;
  }
};

// The part of a row that is coded, its key or its value, and where the codes go.
struct SlicePart {
  SliceFormat format;
  const int16_t* dims;  // as SealSource's
  int64_t in_row;       // bytes
  int row_dim;
  int64_t tail_at;  // in a tail
  int64_t page_at;  // in a slice block
  int64_t base_at;

  FASA_DEVICE static SlicePart keys(const CacheLayout& layout, int layer, int head,
                                    const int16_t* dims) {
    return {layout.slice,
            dims,
            0,
            layout.row.key_dim,
            layout.tail_offset(layer, head),
            layout.slice_offset(layer, head),
            layout.head_index(layer, head) * int64_t{sizeof(float)}};
  }
  FASA_DEVICE static SlicePart values(const CacheLayout& layout, int layer, int head) {
    return {layout.values,
            nullptr,
            layout.row.key_bytes(),
            layout.row.value_dim,
            layout.value_tail_offset(layer, head),
            layout.value_offset(layer, head),
            layout.value_base_offset(layer, head)};
  }
};

// One dimension of a page during coding, in shared memory.
struct SealDim {
  float lo;
  float hi;
  int32_t step;
  float inverse;
  float zero;
};

struct AppendKernel {
  static constexpr const char* kName = "append";
  static constexpr int kThreads = 256;
  static constexpr int kMaxBlocks = 256;  // of a (sequence, KV head)

  AppendParams params;

  // Shared memory: the largest step over the dimensions, the scales of a page's rows, then SealDim
  // [padded dims].
  static constexpr int64_t kScalesAt = 64;
  static constexpr int64_t kDimsAt = kScalesAt + kPageTokens * int64_t{sizeof(float)};
  static constexpr int64_t shared_bytes(const CacheLayout& layout) {
    const int keys = layout.slice.padded_dims();
    const int values = layout.values.padded_dims();
    return kDimsAt + (keys > values ? keys : values) * int64_t{sizeof(SealDim)};
  }

  FASA_DEVICE void operator()() const {
    const SequenceDesc& sequence = params.step.sequences[simt::block_z()];
    if (sequence.tokens <= 0) return;
    const int first = sequence.start / kPageTokens;
    const int last = (sequence.end() - 1) / kPageTokens;
    for (int page = first + simt::block_x(); page < last || page == first; page += simt::grid_x()) {
      const bool in_tail = page == first;
      fill_page(sequence, page, in_tail);
      if (in_tail && last > first) fill_page(sequence, last, true);
    }
  }

  // Same result as smallest_scale_step(); the search starts nearer to it.
  FASA_DEVICE static int smallest_step(float lo, float hi, int bits) {
    const double least = codec::min_scale(lo, hi, bits);
    if (least <= 0) return kMinScaleStep;
    const auto exponent = static_cast<int>(std::bit_cast<uint64_t>(least) >> 52) - 1023;
    return codec::fitting_step(lo, hi, bits, exponent * 8 - 1);
  }

 private:
  FASA_DEVICE const CacheLayout& layout() const { return params.step.layout; }

  FASA_DEVICE void fill_page(const SequenceDesc& sequence, int page, bool in_tail) const {
    const int page_start = page * kPageTokens;
    const int page_end = page_start + kPageTokens;
    const int begin = sequence.start > page_start ? sequence.start : page_start;
    const int end = sequence.end() < page_end ? sequence.end() : page_end;
    for (int position = begin + simt::warp(); position < end && !params.in_place();
         position += simt::block_warps()) {
      write_row(sequence, position);
    }
    if (layout().slice.dims == 0 || sequence.tail == nullptr) return;
    const int16_t* dims = params.step.slice_dims + int64_t{simt::block_y()} * layout().slice.dims;
    const int layer = params.step.layer;
    slice_page(sequence, begin, end, in_tail,
               SlicePart::keys(layout(), layer, simt::block_y(), dims));
    if (!layout().has_values()) return;
    slice_page(sequence, begin, end, in_tail, SlicePart::values(layout(), layer, simt::block_y()));
  }

  // Slices of tokens [begin, end) of a page. Their rows are written, but no barrier has followed.
  FASA_DEVICE void slice_page(const SequenceDesc& sequence, int begin, int end, bool in_tail,
                              const SlicePart& part) const {
    SealSource source = {part.format.tail(), nullptr,      nullptr,
                         part.dims,          layout().row, row_scales()};
    if (layout().row.dtype.is_coded()) find_scales(sequence, begin, end, part);
    if (in_tail) {
      std::byte* tail = sequence.tail + part.tail_at;
      source.page = tail;
      if (begin % kPageTokens == 0) clear(tail, source.tail.page_bytes());
      simt::sync_block();
      for (int i = simt::thread_index(); i < (end - begin) * source.tail.padded_dims();
           i += kThreads) {
        write_tail(sequence, part, begin + i % (end - begin), i / (end - begin), tail);
      }
    } else {
      source.rows = row_of(sequence, begin) + part.in_row;
    }
    simt::sync_block();
    if (end % kPageTokens != 0) return;
    seal(source, part, sequence.slice_blocks[(end - 1) / kPageTokens]);
    simt::sync_block();
  }

  FASA_DEVICE static float* row_scales() {
    return reinterpret_cast<float*>(simt::shared_memory() + kScalesAt);
  }
  // Scales of the page's new rows, by slot.
  FASA_DEVICE void find_scales(const SequenceDesc& sequence, int begin, int end,
                               const SlicePart& part) const {
    simt::sync_block();  // the rows are written, and the previous scales have been read
    for (int position = begin + simt::thread_index(); position < end; position += kThreads) {
      row_scales()[position % kPageTokens] =
          scale_of(row_of(sequence, position) + part.in_row, part.row_dim);
    }
  }

  FASA_DEVICE static void clear(std::byte* memory, int64_t bytes) {
    auto* words = reinterpret_cast<simt::Word16*>(memory);
    for (int64_t i = simt::thread_index(); i < bytes / 16; i += kThreads) words[i] = {};
  }

  FASA_DEVICE std::byte* protected_row_of(const SequenceDesc& sequence, int position) const {
    if (sequence.protected_rows == nullptr) return nullptr;
    if (position >= layout().sinks && position < sequence.end() - layout().recent) return nullptr;
    return sequence.protected_rows + layout().protected_offset(params.step.layer, simt::block_y(),
                                                               layout().protected_slot(position));
  }

  // The first location that a new row is written to.
  FASA_DEVICE std::byte* row_of(const SequenceDesc& sequence, int position) const {
    const int page = position / kPageTokens;
    const int slot = position % kPageTokens;
    if (sequence.access == RowAccess::kLocal) {
      return sequence.row_blocks[page] +
             layout().row_offset(params.step.layer, simt::block_y(), slot);
    }
    if (sequence.mode == StepMode::kDecode) return protected_row_of(sequence, position);
    return params.step.write_back_row(sequence, simt::block_y(), position);
  }

  // One warp: writes key, value and zero padding to every location of the row.
  FASA_DEVICE void write_row(const SequenceDesc& sequence, int position) const {
    const RowFormat& format = layout().row;
    std::byte* device = sequence.device_row_block(position / kPageTokens);
    if (device != nullptr) {
      device += layout().row_offset(params.step.layer, simt::block_y(), position % kPageTokens);
    }
    std::byte* const homes[3] = {row_of(sequence, position), protected_row_of(sequence, position),
                                 device};
    const int64_t token = int64_t{sequence.first_token} + position - sequence.start;
    if (format.dtype.is_coded()) return encode_row(format, params.k, params.v, token, homes);
    for (int word = simt::lane(); word < format.bytes() / 4; word += simt::kWarpThreads) {
      uint32_t bits = 0;
      if (format.dtype.bytes() == 4) {
        bits = element(token, word);
      } else {
        bits = element(token, 2 * word) | element(token, 2 * word + 1) << 16;
      }
      for (std::byte* home : homes) {
        if (home != nullptr) reinterpret_cast<uint32_t*>(home)[word] = bits;
      }
    }
  }

  // Element `at` of a token's row.
  FASA_DEVICE uint32_t element(int64_t token, int at) const {
    const RowFormat& format = layout().row;
    if (at >= format.key_dim + format.value_dim) return 0;
    const bool key = at < format.key_dim;
    const ConstTensorView& from = key ? params.k : params.v;
    const int64_t index = from.offset(token, simt::block_y()) + (key ? at : at - format.key_dim);
    return element_bits(format.dtype.elements(), load(from.dtype, from.data, index));
  }

  FASA_DEVICE void write_tail(const SequenceDesc& sequence, const SlicePart& part, int position,
                              int dim, std::byte* tail) const {
    const int slot = position % kPageTokens;
    float value = 0;
    if (dim < part.format.dims) {
      const RowDType rows = layout().row.dtype;
      const RowVector of = {rows, row_of(sequence, position) + part.in_row,
                            rows.is_coded() ? row_scales()[slot] : 1.0f};
      value = of.at(part.dims == nullptr ? dim : part.dims[dim]);
    }
    if (part.format.dtype == SliceDType::kF32) {
      reinterpret_cast<float*>(tail)[dim * kPageTokens + slot] = value;
    } else {
      reinterpret_cast<uint16_t*>(tail)[SealSource::pair_at(dim, slot)] = bf16_from_f32(value);
    }
  }

  FASA_DEVICE void seal(const SealSource& source, const SlicePart& part, std::byte* block) const {
    const SliceFormat& format = part.format;
    std::byte* page = block + part.page_at;
    if (!is_coded(format.dtype)) return copy_values(source, page);
    const int base_step = choose_steps(source, format);
    if (simt::thread_index() == 0) {
      *reinterpret_cast<float*>(block + part.base_at) = codec::scale_of_step(base_step);
    }
    choose_codes(format, base_step, page);
    simt::sync_block();
    const int words = format.groups() * kPageTokens;
    for (int i = simt::thread_index(); i < words; i += kThreads) {
      const bool by_group = format.order == SliceOrder::kByGroup;
      const int group = by_group ? i / kPageTokens : i % format.groups();
      const int token = by_group ? i % kPageTokens : i / format.groups();
      reinterpret_cast<uint32_t*>(page)[i] = coded_word(source, format, group, token);
    }
  }

  FASA_DEVICE void copy_values(const SealSource& source, std::byte* page) const {
    const int dims = source.tail.padded_dims();
    for (int i = simt::thread_index(); i < dims * kPageTokens; i += kThreads) {
      const int dim = i / kPageTokens;
      const int token = i % kPageTokens;
      const float value = dim < source.tail.dims ? source.value(dim, token) : 0.0f;
      if (source.tail.dtype == SliceDType::kF32) {
        reinterpret_cast<float*>(page)[i] = value;
      } else {
        reinterpret_cast<uint16_t*>(page)[SealSource::pair_at(dim, token)] = bf16_from_f32(value);
      }
    }
  }

  FASA_DEVICE SealDim* seal_dims() const {
    return reinterpret_cast<SealDim*>(simt::shared_memory() + kDimsAt);
  }

  // Range of a dimension's finite values; other values saturate. One warp.
  FASA_DEVICE static void find_range(const SealSource& source, int dim, SealDim* out) {
    float lo = simt::float_of(0x7f800000u);
    float hi = -lo;
    for (int token = simt::lane(); token < kPageTokens; token += simt::kWarpThreads) {
      const float value = source.value(dim, token);
      if ((simt::bits_of(value) & 0x7f800000u) == 0x7f800000u) continue;
      lo = value < lo ? value : lo;
      hi = value > hi ? value : hi;
    }
    lo = simt::warp_min(lo);
    hi = simt::warp_max(hi);
    if (simt::lane() != 0) return;
    out->lo = lo > hi ? 0 : lo;
    out->hi = lo > hi ? 0 : hi;
  }

  // Ranges and steps of all dimensions; returns the page's base step.
  FASA_DEVICE int choose_steps(const SealSource& source, const SliceFormat& format) const {
    auto* largest = &simt::shared<uint32_t>();  // above kMinScaleStep
    if (simt::thread_index() == 0) *largest = 0;
    for (int dim = simt::warp(); dim < format.dims; dim += simt::block_warps()) {
      find_range(source, dim, seal_dims() + dim);
    }
    simt::sync_block();
    for (int dim = simt::thread_index(); dim < format.dims; dim += kThreads) {
      SealDim& of = seal_dims()[dim];
      of.step = smallest_step(of.lo, of.hi, slice_bits(format.dtype));
      simt::atomic_max(largest, static_cast<uint32_t>(of.step - kMinScaleStep));
    }
    simt::sync_block();
    return codec::base_step_of(static_cast<int>(*largest) + kMinScaleStep);
  }

  // Also writes the parameters into the page, and zeros behind them.
  FASA_DEVICE void choose_codes(const SliceFormat& format, int base_step, std::byte* page) const {
    auto* parameters = reinterpret_cast<uint16_t*>(page + format.code_bytes());
    const auto room = static_cast<int>((format.page_bytes() - format.code_bytes()) / 2);
    for (int dim = simt::thread_index(); dim < room; dim += kThreads) {
      parameters[dim] = 0;
      if (dim >= format.dims) continue;
      SealDim& of = seal_dims()[dim];
      const int least = base_step - kScaleSteps + 1;
      const DimCode code = codec::choose_code(of.lo, of.hi, slice_bits(format.dtype),
                                              of.step > least ? of.step : least, base_step);
      of.inverse = code.inverse;
      of.zero = code.zero;
      parameters[dim] = code.parameter;
    }
  }

  FASA_DEVICE uint32_t coded_word(const SealSource& source, const SliceFormat& format, int group,
                                  int token) const {
    const int bits = slice_bits(format.dtype);
    const int unit = 32 / bits;
    const float top = static_cast<float>((1 << bits) - 1);
    uint32_t word = 0;
    for (int i = 0; i < unit && group * unit + i < format.dims; ++i) {
      const int dim = group * unit + i;
      const SealDim& of = seal_dims()[dim];
      const float place = source.value(dim, token) * of.inverse - of.zero;
      if (!(place > 0)) continue;  // NaN too
      const float code = round_code(place < top ? place : top);
      word |= static_cast<uint32_t>(code) << (i % 4 * 8 + i / 4 * bits);
    }
    return word;
  }
};

template <typename Launcher>
void start(const AppendParams& params, const Launcher& launch) {
  // A block per page, for the case that all tokens belong to one sequence.
  const int64_t pages = params.k.tokens / kPageTokens + 1;
  launch(
      AppendKernel{params},
      {.x = static_cast<int>(pages < AppendKernel::kMaxBlocks ? pages : AppendKernel::kMaxBlocks),
       .y = params.step.layout.kv_heads,
       .z = params.step.count,
       .shared_bytes = AppendKernel::shared_bytes(params.step.layout)});
}

}  // namespace fasa::cuda
