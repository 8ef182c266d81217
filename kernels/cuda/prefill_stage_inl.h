// Keys and values of a page in shared memory, for a prefill on tensor cores: elements as stored,
// copied while the block works; codes as bf16, which represents them exactly, with their scales.
// Slots beyond the page's visible ones are zero. Values that are not finite are zero too, because
// they must not be multiplied by the zero weights of queries that do not see them. Values of wide
// heads overwrite their keys.
#pragma once

#include "kernels/cuda/rows_inl.h"

namespace fasa::cuda {

template <DType kElement>
FASA_DEVICE uint32_t packed(float low, float high) {
  return element_bits(kElement, low) | element_bits(kElement, high) << 16;
}

// Costs of a head dimension. Rows have `kDim` / 2 + 4 words, so that the lanes of a product's loads
// use different banks.
template <int kDim>
struct PrefillTileDim {
  static_assert(kDim % 16 == 0);                // a product's depth
  static constexpr int kDepths = kDim / 16;     // products along a key
  static constexpr int kStride = kDim / 2 + 4;  // words of a copied vector
  static constexpr int64_t kVectorWords = int64_t{kPageTokens} * kStride;
  static constexpr bool kKeepsQueries = kDim <= 128;  // in registers, from page to page
  static constexpr bool kKeepsKeys = kDim <= 128;  // in memory of their own, apart from the values
};

// Location of a page's rows of one KV head: new ones in the write-back buffer, if there is one, the
// others contiguous in their page.
struct PageRows {
  const std::byte* stored;
  const std::byte* fresh;
  int first_fresh;  // slot
  int slots;        // number of slots that are read
  int64_t row_bytes;

  FASA_DEVICE static PageRows of(const PrefillParams& params, int sequence, int kv_head, int page,
                                 int slots) {
    const StepParams& step = params.step;
    const SequenceDesc& desc = step.sequences[sequence];
    PageRows rows = {nullptr, nullptr, kPageTokens, slots, step.layout.row.bytes()};
    if (desc.write_back_buffer != nullptr) {
      const int old = desc.start - page * kPageTokens;
      rows.first_fresh = old < 0 ? 0 : old < kPageTokens ? old : kPageTokens;
      if (rows.first_fresh < slots) {
        rows.fresh = step.write_back_row(desc, kv_head, page * kPageTokens);
      }
    }
    if (rows.first_fresh > 0) {
      rows.stored =
          row_at(step, sequence, kv_head, page * kPageTokens, params.pages, NewRows::kInPages);
    }
    return rows;
  }
  FASA_DEVICE const std::byte* at(int slot) const {
    return (slot < first_fresh ? stored : fresh) + slot * row_bytes;
  }
};

// Used by a block of kThreads.
template <RowDType::Kind kRow, int kDim, int kThreads>
struct PrefillStage {
  using Dim = PrefillTileDim<kDim>;
  static constexpr bool kCoded = RowDType(kRow).is_coded();
  static constexpr DType kElement = kCoded ? DType::kBF16 : RowDType(kRow).elements();
  static constexpr int kStride = Dim::kStride;
  static constexpr int64_t kStagedWords = (Dim::kKeepsKeys ? 2 : 1) * Dim::kVectorWords;
  static constexpr int64_t kScales = kCoded ? 2 * kPageTokens : 0;  // of keys, then of values
  static constexpr int64_t kSharedBytes = kStagedWords * 4 + 16 + kScales * 4;  // plus a flag
  static_assert(kThreads == 2 * kPageTokens);

  FASA_DEVICE static uint32_t* keys() { return reinterpret_cast<uint32_t*>(simt::shared_memory()); }
  FASA_DEVICE static uint32_t* values() {
    return Dim::kKeepsKeys ? keys() + Dim::kVectorWords : keys();
  }
  // Set if the page has values that are not finite.
  FASA_DEVICE static uint32_t& spoilt() { return keys()[kStagedWords]; }
  FASA_DEVICE static float* key_scales() {
    return reinterpret_cast<float*>(keys() + kStagedWords + 4);
  }
  FASA_DEVICE static float* value_scales() { return key_scales() + kPageTokens; }

  // Each call is one group of copies, which may still be running on return. The caller has finished
  // reading the memory that they overwrite.
  FASA_DEVICE static void bring_keys(const PageRows& rows) { bring(rows, 0, keys(), key_scales()); }
  FASA_DEVICE static void bring_values(const PageRows& rows) {
    bring(rows, kDim, values(), value_scales());
  }
  // Cleans the values that this thread copied and has waited for, before other threads read them.
  FASA_DEVICE static void clean_values(int slots) {
    if constexpr (kCoded) {
      const int slot = simt::thread_index();
      if (slot >= kPageTokens || value_scales()[slot] == value_scales()[slot]) return;
      value_scales()[slot] = 0;
      simt::atomic_or(&spoilt(), 1u);
    } else {
      for_each_word([&](int slot, int word) {
        if (slot < slots) make_finite(*word_at(values(), slot, word));
      });
    }
  }

 private:
  FASA_DEVICE static simt::Word16* word_at(uint32_t* vectors, int slot, int word) {
    return reinterpret_cast<simt::Word16*>(vectors + slot * kStride) + word;
  }

  // Calls visit(slot, 16-byte word of a vector), eight threads per slot.
  template <typename Visit>
  FASA_DEVICE static void for_each_word(const Visit& visit) {
    constexpr int kOfSlot = 8;
    constexpr int kWords = kDim / 8;
    FASA_UNROLL
    for (int i = 0; i < kPageTokens; i += kThreads / kOfSlot) {
      const int slot = i + simt::thread_index() / kOfSlot;
      FASA_UNROLL
      for (int first = 0; first < kWords; first += kOfSlot) {
        const int word = first + simt::thread_index() % kOfSlot;
        if (word < kWords) visit(slot, word);
      }
    }
  }

  // Copies the vectors that begin at element `first` of each row.
  FASA_DEVICE static void bring(const PageRows& rows, int first, uint32_t* to, float* scales) {
    if constexpr (kCoded) {
      bring_codes(rows, first, to);
      // One thread per slot computes the scale.
      const int slot = simt::thread_index();
      if (slot < kPageTokens) {
        scales[slot] = slot < rows.slots ? scale_of(rows.at(slot) + first, kDim) : 0.0f;
      }
    } else {
      constexpr int kElementBytes = 2;
      for_each_word([&](int slot, int word) {
        simt::Word16* const at = word_at(to, slot, word);
        if (slot < rows.slots) {
          const std::byte* vector = rows.at(slot) + first * kElementBytes;
          simt::copy_async(at, reinterpret_cast<const simt::Word16*>(vector) + word);
        } else {
          *at = {};
        }
      });
    }
    simt::commit_copies();
  }

  // Each thread reads eight codes of four slots before it writes any.
  FASA_DEVICE static void bring_codes(const PageRows& rows, int first, uint32_t* to) {
    constexpr int kWords = kDim / 8;  // of eight codes
    constexpr int kAtOnce = 4;
    for (int i = simt::thread_index(); i < kWords * kPageTokens / kAtOnce; i += kThreads) {
      const int word = i % kWords;
      const int begin = i / kWords * kAtOnce;
      simt::Word8 codes[kAtOnce];
      FASA_UNROLL
      for (int n = 0; n < kAtOnce; ++n) {
        codes[n] = {};
        if (begin + n >= rows.slots) continue;
        codes[n] = reinterpret_cast<const simt::Word8*>(rows.at(begin + n) + first)[word];
      }
      FASA_UNROLL
      for (int n = 0; n < kAtOnce; ++n) {
        *word_at(to, begin + n,
                 word) = {{pair_of(codes[n].words[0], 0), pair_of(codes[n].words[0], 16),
                           pair_of(codes[n].words[1], 0), pair_of(codes[n].words[1], 16)}};
      }
    }
  }
  FASA_DEVICE static uint32_t pair_of(uint32_t codes, int shift) {
    const auto code = [codes](int at) {
      return static_cast<float>(static_cast<int8_t>(codes >> at & 0xffu));
    };
    return packed<kElement>(code(shift), code(shift + 8));
  }

  FASA_DEVICE static void make_finite(simt::Word16& word) {
    constexpr uint32_t kExponent = kElement == DType::kBF16 ? 0x7f80u : 0x7c00u;
    simt::Word16 whole = word;
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
    simt::atomic_or(&spoilt(), 1u);
  }
};

}  // namespace fasa::cuda
