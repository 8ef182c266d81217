// Keys and values of a tile in shared memory, for a prefill on tensor cores: elements as stored,
// copied while the block works on the tile before; codes as bf16, which represents them exactly,
// with their scales. Slots beyond the tile's visible ones are zero.
#pragma once

#include "kernels/cuda/rows_inl.h"

namespace fasa::cuda {

// Two numbers rounded to elements, the first in the low half.
template <DType kElement>
FASA_DEVICE uint32_t packed(float low, float high) {
  if constexpr (kElement == DType::kF16) return pack_f16(low, high);
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  uint32_t pair;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
#else
  return element_bits(kElement, low) | element_bits(kElement, high) << 16;
#endif
}

// What two numbers lose as packed(low, high); zero for a number that is not finite.
template <DType kElement>
FASA_DEVICE uint32_t packed_rest(float low, float high, uint32_t pair) {
  constexpr bool kShort = kElement == DType::kBF16;
  const float a =
      low - (kShort ? simt::float_of(pair << 16) : float_of_f16(static_cast<uint16_t>(pair)));
  const float b = high - (kShort ? simt::float_of(pair & 0xffff0000u)
                                 : float_of_f16(static_cast<uint16_t>(pair >> 16)));
  return packed<kElement>(a == a ? a : 0.0f, b == b ? b : 0.0f);
}

// Shapes of a head dimension. A vector's 16-byte words are exchanged, or followed by an unused one,
// so that eight rows' words at the same index are in different banks.
template <int kDim>
struct PrefillTileDim {
  static_assert(kDim % 16 == 0);                        // a product's depth
  static constexpr int kKeys = kDim <= 128 ? 64 : 32;   // of a tile: registers of scores
  static constexpr int kTiles = kPageTokens / kKeys;    // of a page
  static constexpr int kDepths = kDim / 16;             // products along a key
  static constexpr int kWords = kDim / 8;               // of 16 bytes, of a vector
  static constexpr bool kExchanged = kWords % 8 == 0;   // else kWords + 1 is odd
  static constexpr int kStride = kWords + !kExchanged;  // words from vector to vector
  static constexpr int kVectorWords = kKeys * kStride;  // of all keys or values

  // Index of word `at` + `odd` of vector 8 x `eight` + `row`, with row below 8 and odd 0, or 1 if
  // `at` is even.
  FASA_DEVICE static constexpr int word(int eight, int row, int at, int odd = 0) {
    const int vector = (eight * 8 + row) * kStride;
    return vector + (kExchanged ? at / 8 * 8 + (at % 8 ^ (row ^ odd)) : at + odd);
  }
};

// Rows of one KV head, a tile's: new ones in the write-back buffer, if there is one, the others
// contiguous in their page.
struct TileRows {
  const std::byte* stored;
  const std::byte* fresh;
  int first_fresh;  // slot
  int slots;        // number of slots that are read

  FASA_DEVICE const std::byte* at(int slot, int64_t row_bytes) const {
    return (slot < first_fresh ? stored : fresh) + slot * row_bytes;
  }
};

// How a block finds its tiles' rows: row_at() with all that is the same for each page.
struct PrefillPages {
  std::byte* const* blocks;
  std::byte* const* on_device;
  int device_pages;
  int start;  // position of the first new row
  const std::byte* copied;
  int first_copied;
  int copied_pages;
  const std::byte* fresh;  // of the page that holds `start`; null: no write-back buffer
  int64_t in_block;
  int64_t page_bytes;  // from page to page of copies and of the write-back buffer
  int64_t row_bytes;

  FASA_DEVICE static PrefillPages of(const PrefillParams& params, int sequence, int kv_head) {
    const StepParams& step = params.step;
    const SequenceDesc& desc = step.sequences[sequence];
    const CacheLayout& layout = step.layout;
    PrefillPages pages = {};
    pages.blocks = desc.row_blocks;
    pages.on_device = desc.device_row_blocks;
    pages.device_pages = desc.device_row_pages;
    pages.start = desc.start;
    pages.in_block = layout.row_offset(step.layer, kv_head, 0);
    pages.page_bytes = layout.kv_heads * layout.row_head_bytes();
    pages.row_bytes = layout.row.bytes();
    if (params.pages.data != nullptr) {
      pages.copied =
          params.pages.data + (int64_t{sequence} * params.pages.pages * layout.kv_heads + kv_head) *
                                  layout.row_head_bytes();
      pages.first_copied = params.pages.first_page;
      pages.copied_pages = params.pages.pages;
    }
    if (desc.write_back_buffer != nullptr) {
      pages.fresh = step.write_back_row(desc, kv_head, desc.start / kPageTokens * kPageTokens);
    }
    return pages;
  }

  // Rows [first, first + slots) of a page; new ones beyond `slots` do not count.
  FASA_DEVICE TileRows rows(int page, int first, int slots) const {
    const int old = start - page * kPageTokens - first;
    TileRows rows = {nullptr, nullptr, fresh == nullptr ? kPageTokens : old, slots};
    const int64_t in_page = first * row_bytes;
    if (rows.first_fresh < slots) {
      rows.fresh = fresh + (page - start / kPageTokens) * page_bytes + in_page;
    }
    if (rows.first_fresh > 0) rows.stored = stored(page) + in_page;
    return rows;
  }

 private:
  FASA_DEVICE const std::byte* stored(int page) const {
    const std::byte* block = page < device_pages ? on_device[page] : nullptr;
    const int at = page - first_copied;
    if (block == nullptr && at >= 0 && at < copied_pages) return copied + at * page_bytes;
    return (block == nullptr ? blocks[page] : block) + in_block;
  }
};

// Shared memory of a block of kThreads: the tile that is worked on and the next one.
template <RowDType::Kind kRow, int kDim, int kThreads>
struct PrefillStage {
  using Dim = PrefillTileDim<kDim>;
  using Word = simt::Word16;
  static constexpr bool kCoded = RowDType(kRow).is_coded();
  static constexpr DType kElement = kCoded ? DType::kBF16 : RowDType(kRow).elements();
  static constexpr int kKeys = Dim::kKeys;
  static constexpr int64_t kScales = kCoded ? 4 * kKeys : 0;  // a tile's keys, then its values
  static constexpr int64_t kSharedBytes = 4 * Dim::kVectorWords * 16 + kScales * 4;
  static_assert(kSharedBytes <= (kCoded ? 96 << 10 : 64 << 10));  // sm_75 has 64 KiB

  FASA_DEVICE static Word* keys(int tile) {
    return reinterpret_cast<Word*>(simt::shared_memory()) + tile % 2 * (2 * Dim::kVectorWords);
  }
  FASA_DEVICE static Word* values(int tile) { return keys(tile) + Dim::kVectorWords; }
  FASA_DEVICE static float* key_scales(int tile) {
    return reinterpret_cast<float*>(keys(0) + 4 * Dim::kVectorWords) + tile % 2 * (2 * kKeys);
  }
  FASA_DEVICE static float* value_scales(int tile) { return key_scales(tile) + kKeys; }
  // In the memory of a tile's keys, once all threads have read them: a flag, and 16 x 8 weights of
  // each warp.
  FASA_DEVICE static uint32_t& spoilt(int tile) { return keys(tile)->words[0]; }
  FASA_DEVICE static float* weights(int tile) {
    static_assert(Dim::kVectorWords > kThreads / simt::kWarpThreads * 32);
    return reinterpret_cast<float*>(keys(tile) + 1) + simt::warp() * 128;
  }

  // Copies a tile's keys and values, as one group of copies, which may still be running on return.
  FASA_DEVICE static void bring(const TileRows& rows, int64_t row_bytes, int tile) {
    if constexpr (kCoded) {
      bring_codes(rows, row_bytes, tile);
      static_assert(kThreads >= 2 * kKeys);  // a thread for each scale
      const int slot = simt::thread_index() % kKeys;
      const int part = simt::thread_index() / kKeys;
      if (part < 2) {
        key_scales(tile)[part * kKeys + slot] =
            slot < rows.slots ? scale_of(rows.at(slot, row_bytes) + part * kDim, kDim) : 0.0f;
      }
    } else {
      for_each_word([&](int slot, int word) {
        const int to = Dim::word(slot / 8, slot % 8, word);
        if (slot < rows.slots) {
          const Word* row = reinterpret_cast<const Word*>(rows.at(slot, row_bytes));
          simt::copy_async(keys(tile) + to, row + word);
          simt::copy_async(values(tile) + to, row + Dim::kWords + word);
        } else {
          keys(tile)[to] = {};
          values(tile)[to] = {};
        }
      });
    }
    simt::commit_copies();
  }

  // Zeroes values that are not finite, and sets the flag if there are any.
  FASA_DEVICE static void clean_values(int tile) {
    if constexpr (kCoded) {
      const int slot = simt::thread_index();
      if (slot >= kKeys || value_scales(tile)[slot] == value_scales(tile)[slot]) return;
      value_scales(tile)[slot] = 0;
      simt::atomic_or(&spoilt(tile), 1u);
    } else {
      for_each_word([&](int slot, int word) {
        make_finite(values(tile)[Dim::word(slot / 8, slot % 8, word)], spoilt(tile));
      });
    }
  }

 private:
  // Calls visit(slot, word of a vector), eight threads per slot.
  template <typename Visit>
  FASA_DEVICE static void for_each_word(const Visit& visit) {
    constexpr int kOfSlot = 8;
    FASA_UNROLL
    for (int i = 0; i < kKeys; i += kThreads / kOfSlot) {
      const int slot = i + simt::thread_index() / kOfSlot;
      FASA_UNROLL
      for (int first = 0; first < Dim::kWords; first += kOfSlot) {
        const int word = first + simt::thread_index() % kOfSlot;
        if (word < Dim::kWords) visit(slot, word);
      }
    }
  }

  // Each thread reads eight codes of the keys and values of four slots before it writes any.
  FASA_DEVICE static void bring_codes(const TileRows& rows, int64_t row_bytes, int tile) {
    constexpr int kAtOnce = 4;
    for (int i = simt::thread_index(); i < Dim::kWords * kKeys / kAtOnce; i += kThreads) {
      const int word = i % Dim::kWords;
      const int begin = i / Dim::kWords * kAtOnce;
      simt::Word8 codes[2][kAtOnce];
      FASA_UNROLL
      for (int n = 0; n < kAtOnce; ++n) {
        codes[0][n] = codes[1][n] = {};
        if (begin + n >= rows.slots) continue;
        const auto* row = reinterpret_cast<const simt::Word8*>(rows.at(begin + n, row_bytes));
        codes[0][n] = row[word];
        codes[1][n] = row[Dim::kWords + word];
      }
      FASA_UNROLL
      for (int n = 0; n < kAtOnce; ++n) {
        const int to = Dim::word((begin + n) / 8, (begin + n) % 8, word);
        keys(tile)[to] = elements_of(codes[0][n]);
        values(tile)[to] = elements_of(codes[1][n]);
      }
    }
  }
  FASA_DEVICE static Word elements_of(const simt::Word8& codes) {
    return {{pair_of(codes.words[0], 0), pair_of(codes.words[0], 16), pair_of(codes.words[1], 0),
             pair_of(codes.words[1], 16)}};
  }
  FASA_DEVICE static uint32_t pair_of(uint32_t codes, int shift) {
    const auto code = [codes](int at) {
      return static_cast<float>(static_cast<int8_t>(codes >> at & 0xffu));
    };
    return packed<kElement>(code(shift), code(shift + 8));
  }

  FASA_DEVICE static void make_finite(Word& word, uint32_t& spoilt) {
    constexpr uint32_t kExponent = kElement == DType::kBF16 ? 0x7f80u : 0x7c00u;
    Word whole = word;
    bool found = false;
    FASA_UNROLL
    for (int i = 0; i < 4; ++i) {
      const uint32_t low = whole.words[i] & kExponent;
      const uint32_t high = whole.words[i] >> 16 & kExponent;
      found = found || low == kExponent || high == kExponent;
      if (low == kExponent) whole.words[i] &= 0xffff0000u;
      if (high == kExponent) whole.words[i] &= 0x0000ffffu;
    }
    if (!found) return;
    word = whole;
    simt::atomic_or(&spoilt, 1u);
  }
};

}  // namespace fasa::cuda
