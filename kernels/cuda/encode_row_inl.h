// Codes keys and values as rows (row_format.h), one warp each: lanes l and l + 16 have the codes
// that hold bit l of the scale.
#pragma once

#include "kernels/cuda/rows_inl.h"

namespace fasa::cuda {

// One key or value during coding.
class VectorEncoder {
 public:
  FASA_DEVICE VectorEncoder(const ConstTensorView& from, int64_t token, int dim)
      : from_(from), index_(from.offset(token, simt::block_y())), dim_(dim) {
    uint32_t largest = 0;
    for (int d = simt::lane(); d < dim; d += simt::kWarpThreads) {
      const uint32_t bits = simt::bits_of(value(d)) & 0x7fffffffu;
      largest = bits > largest ? bits : largest;
    }
    const uint16_t scale = codec::row_scale(simt::warp_max(largest));
    inverse_ = codec::row_inverse(scale);
    choose_moved(static_cast<uint32_t>(scale) >> (simt::lane() % kScaleBits) & 1u);
  }

  // Code of dimension d, one of this lane's: simt::lane(), and every 32nd after it.
  FASA_DEVICE int8_t code(int d) const {
    const codec::RowCode of = codec::row_code(value(d), inverse_);
    const int moved = d == moved_ ? codec::other_neighbour(of) : 0;
    return static_cast<int8_t>(static_cast<int>(of.code) + moved);
  }

 private:
  FASA_DEVICE float value(int d) const { return load(from_.dtype, from_.data, index_ + d); }

  // If the parity is not `wanted`, chooses the code with the largest rounding error, the first one
  // of equals.
  FASA_DEVICE void choose_moved(uint32_t wanted) {
    uint32_t parity = 0;
    float farthest = -1;
    int at = dim_;
    for (int d = simt::lane(); d < dim_; d += simt::kWarpThreads) {
      const codec::RowCode of = codec::row_code(value(d), inverse_);
      parity ^= static_cast<uint32_t>(static_cast<int>(of.code)) & 1u;
      const float distance = codec::row_code_distance(of);
      if (distance > farthest) farthest = distance, at = d;
    }
    parity ^= simt::shuffle_xor(parity, kScaleBits);
    const float other = simt::shuffle_xor(farthest, kScaleBits);
    const int other_at = simt::shuffle_xor(at, kScaleBits);
    const bool mine = farthest > other || (farthest == other && at < other_at);
    moved_ = parity == wanted ? -1 : mine ? at : other_at;
  }

  const ConstTensorView& from_;
  const int64_t index_;
  const int dim_;
  float inverse_ = 0;
  int moved_ = -1;
};

// Writes a token's row, of the block's KV head, to up to three addresses.
FASA_DEVICE void encode_row(const RowFormat& format, const ConstTensorView& k,
                            const ConstTensorView& v, int64_t token, std::byte* const (&homes)[3]) {
  const VectorEncoder key(k, token, format.key_dim);
  const VectorEncoder value(v, token, format.value_dim);
  const auto put = [&homes](int64_t at, int8_t code) {
    for (std::byte* home : homes) {
      if (home != nullptr) home[at] = static_cast<std::byte>(code);
    }
  };
  for (int d = simt::lane(); d < format.key_dim; d += simt::kWarpThreads) put(d, key.code(d));
  for (int d = simt::lane(); d < format.value_dim; d += simt::kWarpThreads) {
    put(format.key_dim + d, value.code(d));
  }
  for (int64_t at = format.used_bytes() + simt::lane(); at < format.bytes();
       at += simt::kWarpThreads) {
    put(at, 0);
  }
}

}  // namespace fasa::cuda
