// Appends new tokens as rows and slices. A block processes a page of one (sequence, KV head): the
// rows, then the page's tail, then, if the page is full, its codes. The tail holds the newest page,
// full or not, until the next one begins. The step's first page may continue the tail and its last
// page ends in it, so one block does both, in order. Pages between them never use the tail. Codes
// are made from a copy of the page in shared memory, kImageDims dimensions at a time, rounded as
// the tail rounds. Rows that are not coded are sliced from the step's tensors: no load waits for a
// row that has just been written.
#pragma once

#include "kernels/cuda/encode_row_inl.h"
#include "kernels/slice_codec_inl.h"

namespace fasa::cuda {

inline constexpr int kImageDims = 128;

// Up to kImageDims dimensions of a page in shared memory, in the tail's dtype. Rows of kPageTokens
// words, a dimension in f32 or a pair in bf16; row r is rotated by r, so that lanes with a token
// each, and lanes with a row each, use different banks.
struct PageImage {
  SliceDType dtype;
  std::byte* memory;

  static constexpr int64_t bytes(const SliceFormat& format) {
    const int dims = format.padded_dims() < kImageDims ? format.padded_dims() : kImageDims;
    return int64_t{dims} * kPageTokens * (format.tail().dtype == SliceDType::kF32 ? 4 : 2);
  }
  FASA_DEVICE bool has_pairs() const { return dtype != SliceDType::kF32; }
  FASA_DEVICE uint32_t& word(int row, int token) const {
    return reinterpret_cast<uint32_t*>(memory)[row * kPageTokens + (token + row) % kPageTokens];
  }
  FASA_DEVICE float value(int dim, int token) const {
    if (!has_pairs()) return simt::float_of(word(dim, token));
    const uint32_t pair = word(dim / 2, token);
    return simt::float_of(dim % 2 == 0 ? pair << 16 : pair & 0xffff0000u);
  }
  FASA_DEVICE void set(int dim, int token, float value) const {
    if (!has_pairs()) {
      word(dim, token) = simt::bits_of(value);
    } else {
      reinterpret_cast<uint16_t*>(&word(dim / 2, token))[dim % 2] = bf16_from_f32(value);
    }
  }
};

FASA_DEVICE int pair_at(int dim, int token) {
  return (dim / 2 * kPageTokens + token) * 2 + dim % 2;
}

// A new token's key or value as its row stores it.
struct NewVector {
  ConstTensorView from;  // of the step; null data: `row`
  int64_t index;
  RowVector row;

  FASA_DEVICE float at(int d) const {
    if (from.data == nullptr) return row.at(d);
    const float value = load(from.dtype, from.data, index + d);
    const DType stored = row.dtype.elements();
    if (stored == from.dtype || stored == DType::kF32) return value;
    const auto bits = static_cast<uint16_t>(element_bits(stored, value));
    return stored == DType::kBF16 ? simt::float_of(uint32_t{bits} << 16) : float_of_f16(bits);
  }
};

// The part of a row that is coded, its key or its value, and where the codes go.
struct SlicePart {
  SliceFormat format;
  const int16_t* dims;  // null: the first ones
  bool is_key;
  int64_t in_row;  // bytes
  int row_dim;
  int64_t tail_at;  // in a tail
  int64_t page_at;  // in a slice block
  int64_t base_at;

  FASA_DEVICE static SlicePart keys(const CacheLayout& layout, int layer, int head,
                                    const int16_t* dims) {
    return {layout.slice,
            dims,
            true,
            0,
            layout.row.key_dim,
            layout.tail_offset(layer, head),
            layout.slice_offset(layer, head),
            layout.head_index(layer, head) * int64_t{sizeof(float)}};
  }
  FASA_DEVICE static SlicePart values(const CacheLayout& layout, int layer, int head) {
    return {layout.values,
            nullptr,
            false,
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

  // Shared memory: the largest step over the dimensions, the scales of a page's rows, SealDim
  // [padded dims], then the page's image.
  static constexpr int64_t kScalesAt = 64;
  static constexpr int64_t kDimsAt = kScalesAt + kPageTokens * int64_t{sizeof(float)};
  static constexpr int64_t image_at(const CacheLayout& layout) {
    const int keys = layout.slice.padded_dims();
    const int values = layout.values.padded_dims();
    return align_up(kDimsAt + (keys > values ? keys : values) * int64_t{sizeof(SealDim)});
  }
  static constexpr int64_t shared_bytes(const CacheLayout& layout) {
    const int64_t keys = PageImage::bytes(layout.slice);
    const int64_t values = PageImage::bytes(layout.values);
    return image_at(layout) + (keys > values ? keys : values);
  }

  FASA_DEVICE void operator()() const {
    const SequenceDesc& sequence = params.step.sequences[simt::block_z()];
    if (sequence.tokens <= 0) return;
    const int first = sequence.start / kPageTokens;
    const int last = (sequence.end() - 1) / kPageTokens;
    int page = first + simt::block_x();
    if (page >= last && page != first) return;
    FASA_NO_UNROLL
    while (true) {
      fill_page(sequence, page, page == first || page == last);
      if (page == last) return;
      page += simt::grid_x();
      if (page < last) continue;
      if (simt::block_x() != 0) return;
      page = last;  // the first page's block
    }
  }

  // Same result as smallest_scale_step(): the search starts a step below the bound as well.
  FASA_DEVICE static int smallest_step(float lo, float hi, int bits) {
    const double least = codec::min_scale(lo, hi, bits);
    if (least <= 0) return kMinScaleStep;
    const auto bits_of_least = std::bit_cast<uint64_t>(least);
    const auto exponent = static_cast<int>(bits_of_least >> 52) - 1023;
    // 1 <= mantissa < 2; its eighths of an octave, rounded down.
    const float mantissa =
        simt::float_of(0x3f800000u | static_cast<uint32_t>(bits_of_least >> 29 & 0x7fffffu));
    constexpr float kEighth = 1.09050773f;
    int eighths = 0;
    for (float bound = kEighth; bound <= mantissa && eighths < 7; bound *= kEighth) ++eighths;
    return codec::fitting_step(lo, hi, bits, exponent * 8 + eighths - 1);
  }

 private:
  FASA_DEVICE const CacheLayout& layout() const { return params.step.layout; }

  FASA_DEVICE void fill_page(const SequenceDesc& sequence, int page, bool in_tail) const {
    const int page_start = page * kPageTokens;
    const int page_end = page_start + kPageTokens;
    const int begin = sequence.start > page_start ? sequence.start : page_start;
    const int end = sequence.end() < page_end ? sequence.end() : page_end;
    if (!params.in_place()) write_rows(sequence, begin, end);
    if (layout().slice.dims == 0 || sequence.tail == nullptr) return;
    const int16_t* dims = params.step.slice_dims + int64_t{simt::block_y()} * layout().slice.dims;
    const int layer = params.step.layer;
    const int parts = layout().has_values() ? 2 : 1;
    FASA_NO_UNROLL
    for (int i = 0; i < parts; ++i) {
      slice_page(sequence, begin, end, in_tail,
                 i == 0 ? SlicePart::keys(layout(), layer, simt::block_y(), dims)
                        : SlicePart::values(layout(), layer, simt::block_y()));
    }
  }

  // Slices of tokens [begin, end) of a page. Their rows are written, but no barrier has followed.
  FASA_DEVICE void slice_page(const SequenceDesc& sequence, int begin, int end, bool in_tail,
                              const SlicePart& part) const {
    if (layout().row.dtype.is_coded()) find_scales(sequence, begin, end, part);
    std::byte* const tail = in_tail ? sequence.tail + part.tail_at : nullptr;
    const SliceFormat tail_format = part.format.tail();
    const bool clears = in_tail && begin % kPageTokens == 0;
    if (clears) clear(tail, tail_format.page_bytes());
    if (clears || reads_rows()) simt::sync_block();
    if (in_tail) {
      // Backwards: the first warps may write a row.
      for (int i = kThreads - 1 - simt::thread_index();
           i < (end - begin) * tail_format.padded_dims(); i += kThreads) {
        write_tail(sequence, part, begin + i % (end - begin), i / (end - begin), tail);
      }
    }
    if (end % kPageTokens != 0) return;
    simt::sync_block();
    seal(sequence, part, begin, tail);
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
    if (!sequence.is_protected(layout(), position)) return nullptr;
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

  // Key, value and zero padding of new rows, to every location of each: a warp per row, or several
  // if there are fewer rows than warps.
  FASA_DEVICE void write_rows(const SequenceDesc& sequence, int begin, int end) const {
    const int warps = simt::block_warps();
    const int rows = end - begin < warps ? end - begin : warps;
    const int ways = layout().row.dtype.is_coded() ? 1 : warps / rows;
    const int part = simt::warp() % ways;
    for (int position = begin + simt::warp() / ways; position < end; position += warps / ways) {
      write_row(sequence, position, part * simt::kWarpThreads + simt::lane(),
                ways * simt::kWarpThreads);
    }
  }
  FASA_DEVICE void write_row(const SequenceDesc& sequence, int position, int first,
                             int step) const {
    const RowFormat& format = layout().row;
    std::byte* device = sequence.device_row_block(position / kPageTokens);
    if (device != nullptr) {
      device += layout().row_offset(params.step.layer, simt::block_y(), position % kPageTokens);
    }
    std::byte* const homes[3] = {row_of(sequence, position), protected_row_of(sequence, position),
                                 device};
    const int64_t token = int64_t{sequence.first_token} + position - sequence.start;
    if (format.dtype.is_coded()) return encode_row(format, params.k, params.v, token, homes);
    if (copies_words(token)) return copy_words(token, first, step, homes);
    for (int word = first; word < format.bytes() / 4; word += step) {
      uint32_t bits = 0;
      if (format.dtype.bytes() == 4) {
        bits = element(token, word);
      } else {
        bits = element(token, 2 * word) | element(token, 2 * word + 1) << 16;
      }
      put(bits, word, homes);
    }
  }
  template <typename Word>
  FASA_DEVICE static void put(const Word& word, int at, std::byte* const (&homes)[3]) {
    for (std::byte* home : homes) {
      if (home != nullptr) reinterpret_cast<Word*>(home)[at] = word;
    }
  }

  FASA_DEVICE static const std::byte* bytes_at(const ConstTensorView& from, int64_t token) {
    return static_cast<const std::byte*>(from.data) +
           from.offset(token, simt::block_y()) * dtype_bytes(from.dtype);
  }
  // Whether a token's row is its key's and value's bytes, in whole words.
  FASA_DEVICE bool copies_words(int64_t token) const {
    const RowFormat& format = layout().row;
    const auto at = reinterpret_cast<uintptr_t>(bytes_at(params.k, token)) |
                    reinterpret_cast<uintptr_t>(bytes_at(params.v, token)) |
                    static_cast<uintptr_t>(format.key_bytes() | format.used_bytes());
    return params.k.dtype == format.dtype.elements() && params.v.dtype == params.k.dtype &&
           at % sizeof(simt::Word16) == 0;
  }
  FASA_DEVICE void copy_words(int64_t token, int first, int step,
                              std::byte* const (&homes)[3]) const {
    constexpr int kWord = sizeof(simt::Word16);
    const RowFormat& format = layout().row;
    const auto keys = static_cast<int>(format.key_bytes()) / kWord;
    const auto used = static_cast<int>(format.used_bytes()) / kWord;
    const auto* const k = reinterpret_cast<const simt::Word16*>(bytes_at(params.k, token));
    const auto* const v = reinterpret_cast<const simt::Word16*>(bytes_at(params.v, token)) - keys;
    for (int word = first; word < format.bytes() / kWord; word += step) {
      simt::Word16 bits = {};
      if (word < used) bits = (word < keys ? k : v)[word];
      put(bits, word, homes);
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

  // Whether slices are made from the rows in memory.
  FASA_DEVICE bool reads_rows() const { return params.in_place() || layout().row.dtype.is_coded(); }
  FASA_DEVICE NewVector new_vector(const SequenceDesc& sequence, const SlicePart& part,
                                   int position) const {
    const RowDType dtype = layout().row.dtype;
    if (reads_rows()) {
      const float scale = dtype.is_coded() ? row_scales()[position % kPageTokens] : 1.0f;
      return {{}, 0, {dtype, row_of(sequence, position) + part.in_row, scale}};
    }
    const ConstTensorView& from = part.is_key ? params.k : params.v;
    const int64_t token = int64_t{sequence.first_token} + position - sequence.start;
    return {from, from.offset(token, simt::block_y()), {dtype}};
  }
  FASA_DEVICE void write_tail(const SequenceDesc& sequence, const SlicePart& part, int position,
                              int dim, std::byte* tail) const {
    const int slot = position % kPageTokens;
    float value = 0;
    if (dim < part.format.coded_dims()) {
      value = new_vector(sequence, part, position).at(part.dims == nullptr ? dim : part.dims[dim]);
    }
    if (part.format.dtype == SliceDType::kF32) {
      reinterpret_cast<float*>(tail)[dim * kPageTokens + slot] = value;
    } else {
      reinterpret_cast<uint16_t*>(tail)[pair_at(dim, slot)] = bf16_from_f32(value);
    }
  }

  FASA_DEVICE PageImage image_of(const SlicePart& part) const {
    return {part.format.tail().dtype, simt::shared_memory() + image_at(layout())};
  }
  // Copies stored dimensions [first, first + dims) of a full page to the image, second parts whole
  // (their number is even): from the tail, or from the new tokens from `begin` on. Begins after and
  // ends with a barrier.
  FASA_DEVICE void fill_image(const SequenceDesc& sequence, const SlicePart& part, int begin,
                              const std::byte* tail, int first, int dims) const {
    const PageImage image = image_of(part);
    if (tail != nullptr) {
      const int per_row = image.has_pairs() ? 2 : 1;
      const auto* const words = reinterpret_cast<const uint32_t*>(tail);
      const int count = (dims + per_row - 1) / per_row * kPageTokens;
      FASA_UNROLL_8
      for (int i = simt::thread_index(); i < count; i += kThreads) {
        const int row = i / kPageTokens;
        const int from = part.format.coded_dim(first + row * per_row) / per_row;
        image.word(row, i % kPageTokens) = words[from * kPageTokens + i % kPageTokens];
      }
    } else {
      for (int token = simt::warp(); token < kPageTokens; token += simt::block_warps()) {
        const NewVector from = new_vector(sequence, part, begin + token);
        FASA_UNROLL_4
        for (int dim = simt::lane(); dim < dims; dim += simt::kWarpThreads) {
          const int at = part.dims == nullptr ? first + dim : part.dims[first + dim];
          image.set(dim, token, from.at(at));
        }
        // The other half of the last pair.
        if (image.has_pairs() && dims % 2 != 0 && simt::lane() == 0) image.set(dims, token, 0);
      }
    }
    simt::sync_block();
  }

  // Writes a full page's slices. Begins after and ends with a barrier.
  FASA_DEVICE void seal(const SequenceDesc& sequence, const SlicePart& part, int begin,
                        const std::byte* tail) const {
    const SliceFormat& format = part.format;
    std::byte* const block = sequence.slice_blocks[begin / kPageTokens];
    std::byte* const page = block + part.page_at;
    const bool coded = is_coded(format.dtype);
    for (int first = 0; first < format.dims; first += kImageDims) {
      const int left = format.dims - first;
      const int dims = left < kImageDims ? left : kImageDims;
      fill_image(sequence, part, begin, tail, first, dims);
      if (coded) {
        find_ranges(image_of(part), first, dims);
      } else {
        copy_values(image_of(part), format, first, page);
      }
      simt::sync_block();
    }
    if (!coded) return;
    const int base_step = choose_steps(format);
    if (simt::thread_index() == 0) {
      *reinterpret_cast<float*>(block + part.base_at) = codec::scale_of_step(base_step);
    }
    choose_codes(format, base_step, page);
    simt::sync_block();
    for (int first = 0; first < format.dims; first += kImageDims) {
      const int left = format.dims - first;
      const int dims = left < kImageDims ? left : kImageDims;
      if (format.dims > kImageDims) fill_image(sequence, part, begin, tail, first, dims);
      write_codes(image_of(part), format, first, dims, reinterpret_cast<uint32_t*>(page));
      simt::sync_block();
    }
  }

  // Slices that are not coded; padding too.
  FASA_DEVICE static void copy_values(const PageImage& image, const SliceFormat& format, int first,
                                      std::byte* page) {
    const int left = format.padded_dims() - first;
    const int dims = left < kImageDims ? left : kImageDims;
    for (int i = simt::thread_index(); i < dims * kPageTokens; i += kThreads) {
      const int dim = i / kPageTokens;
      const int token = i % kPageTokens;
      const float value = first + dim < format.dims ? image.value(dim, token) : 0.0f;
      if (!image.has_pairs()) {
        reinterpret_cast<float*>(page)[(first + dim) * kPageTokens + token] = value;
      } else {
        reinterpret_cast<uint16_t*>(page)[pair_at(first + dim, token)] = bf16_from_f32(value);
      }
    }
  }
  FASA_DEVICE void write_codes(const PageImage& image, const SliceFormat& format, int first,
                               int dims, uint32_t* page) const {
    const int unit = 32 / slice_bits(format.dtype);
    const int groups = (dims + unit - 1) / unit;
    for (int i = simt::thread_index(); i < groups * kPageTokens; i += kThreads) {
      const bool by_group = format.order == SliceOrder::kByGroup;
      const int group = by_group ? i / kPageTokens : i % groups;
      const int token = by_group ? i % kPageTokens : i / groups;
      page[format.word_at(first / unit + group, token)] =
          format.fine > 0 ? coded_word<true>(image, format, first, group * unit, token)
                          : coded_word<false>(image, format, first, group * unit, token);
    }
  }

  FASA_DEVICE SealDim* seal_dims() const {
    return reinterpret_cast<SealDim*>(simt::shared_memory() + kDimsAt);
  }

  // Ranges of the image's dimensions, over finite values; other values saturate. Four lanes per
  // dimension; each warp's lanes start at different tokens, in different banks.
  FASA_DEVICE void find_ranges(const PageImage& image, int first, int dims) const {
    constexpr int kLanes = 4;
    const int sub = simt::lane() % kLanes;
    for (int at = simt::thread_index() / kLanes; at < align_to_warp(dims, kLanes);
         at += kThreads / kLanes) {
      const int dim = at < dims ? at : dims - 1;
      float lo = simt::float_of(0x7f800000u);
      float hi = -lo;
      FASA_UNROLL_8
      for (int i = 0; i < kPageTokens / kLanes; ++i) {
        const float value = image.value(dim, i * kLanes + sub);
        const bool finite = (simt::bits_of(value) & 0x7f800000u) != 0x7f800000u;
        lo = finite && value < lo ? value : lo;
        hi = finite && value > hi ? value : hi;
      }
      for (int lanes = 1; lanes < kLanes; lanes *= 2) {
        const float other_lo = simt::shuffle_xor(lo, lanes);
        const float other_hi = simt::shuffle_xor(hi, lanes);
        lo = other_lo < lo ? other_lo : lo;
        hi = other_hi > hi ? other_hi : hi;
      }
      if (sub != 0 || at >= dims) continue;
      seal_dims()[first + dim].lo = lo > hi ? 0 : lo;
      seal_dims()[first + dim].hi = lo > hi ? 0 : hi;
    }
  }
  // Rounded up, so that whole warps take part.
  FASA_DEVICE static int align_to_warp(int dims, int lanes) {
    const int of_warp = simt::kWarpThreads / lanes;
    return (dims + of_warp - 1) / of_warp * of_warp;
  }

  // Steps of all dimensions, whose ranges are known; returns the page's base step.
  FASA_DEVICE int choose_steps(const SliceFormat& format) const {
    auto* largest = &simt::shared<uint32_t>();  // above kMinScaleStep
    if (simt::thread_index() == 0) *largest = 0;
    simt::sync_block();
    for (int dim = simt::thread_index(); dim < format.dims; dim += kThreads) {
      SealDim& of = seal_dims()[dim];
      of.step = smallest_step(of.lo, of.hi, whole_bits(format, dim));
      simt::atomic_max(largest,
                       static_cast<uint32_t>(stored_step(format, dim, of.step) - kMinScaleStep));
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
      const DimCode code =
          codec::choose_code(of.lo, of.hi, whole_bits(format, dim),
                             step_below(format, dim, of.step, base_step), base_step);
      parameters[dim] = stored_parameter(format, dim, code.parameter);
      of.inverse = code.inverse;
      of.zero = code.zero;
    }
  }

  // The codes of a token's dimensions [first + in_image, ...), the image's first one being `first`.
  template <bool kFine>
  FASA_DEVICE uint32_t coded_word(const PageImage& image, const SliceFormat& format, int first,
                                  int in_image, int token) const {
    const int bits = slice_bits(format.dtype);
    const int unit = 32 / bits;
    const int dim = first + in_image;
    const SealDim* const of = seal_dims() + dim;
    const int left = format.dims - dim;
    uint32_t word = 0;
    FASA_UNROLL_4
    for (int i = 0; i < (unit < left ? unit : left); ++i) {
      const int whole = kFine ? whole_bits(format, dim + i) : bits;
      const auto top = static_cast<float>((1 << whole) - 1);
      const float place = image.value(in_image + i, token) * of[i].inverse - of[i].zero;
      const float code = place > 0 ? round_code(place < top ? place : top) : 0.0f;  // NaN: 0
      const auto bits_of_code = static_cast<uint32_t>(code);
      const uint32_t part = kFine ? stored_code(format, dim + i, bits_of_code) : bits_of_code;
      word |= part << (i % 4 * 8 + i / 4 * bits);
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
