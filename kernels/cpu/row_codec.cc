// Plain loops over sixteen codes at a time, the ones that hold one bit each of the scale, of a form
// that the compiler vectorises.
#include "kernels/cpu/row_codec.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "kernels/cpu/row_convert.h"
#include "kernels/row_codec_inl.h"

namespace fasa::cpu {
namespace {

// Of the calling thread; grows only, so that nothing is allocated while decoding.
float* room_of(std::vector<float>& room, int dim) {
  if (room.size() < static_cast<size_t>(dim)) room.resize(static_cast<size_t>(dim));
  return room.data();
}

uint32_t largest_bits(const float* values, int dim) {
  uint32_t largest = 0;
  for (int d = 0; d < dim; ++d) {
    const uint32_t bits = std::bit_cast<uint32_t>(values[d]) & 0x7fffffffu;
    largest = bits > largest ? bits : largest;
  }
  return largest;
}

// Of the codes that hold one bit: how they stand, and which of them is moved if that is wrong.
struct BitHolders {
  int32_t parity[kScaleBits] = {};
  float distance[kScaleBits];
  float step[kScaleBits] = {};
  int32_t first[kScaleBits] = {};  // the code to move, less its bit's number

  BitHolders() { std::fill_n(distance, kScaleBits, -1.0f); }
};

void round_codes(const float* values, int count, int first, float inverse, int8_t* codes,
                 BitHolders* holders) {
  for (int b = 0; b < count; ++b) {
    const codec::RowCode of = codec::row_code(values[b], inverse);
    const auto code = static_cast<int32_t>(of.code);
    const float distance = codec::row_code_distance(of);
    const bool farther = distance > holders->distance[b];
    holders->parity[b] ^= code & 1;
    holders->distance[b] = farther ? distance : holders->distance[b];
    holders->step[b] = farther ? static_cast<float>(codec::other_neighbour(of)) : holders->step[b];
    holders->first[b] = farther ? first : holders->first[b];
    codes[b] = static_cast<int8_t>(code);
  }
}

void encode(const float* values, int dim, std::byte* out) {
  auto* codes = reinterpret_cast<int8_t*>(out);
  const uint16_t scale = codec::row_scale(largest_bits(values, dim));
  const float inverse = codec::row_inverse(scale);
  BitHolders holders;
  for (int first = 0; first < dim; first += kScaleBits) {
    round_codes(values + first, std::min(kScaleBits, dim - first), first, inverse, codes + first,
                &holders);
  }
  for (int b = 0; b < kScaleBits; ++b) {
    if (holders.parity[b] == (scale >> b & 1)) continue;
    int8_t& code = codes[holders.first[b] + b];
    code = static_cast<int8_t>(code + static_cast<int>(holders.step[b]));
  }
}

RowElements decode(const std::byte* vector, int dim, std::vector<float>& room) {
  const auto* codes = reinterpret_cast<const int8_t*>(vector);
  int8_t parities[kScaleBits] = {};
  for (int d = 0; d < dim; ++d) {
    parities[d % kScaleBits] = static_cast<int8_t>(parities[d % kScaleBits] ^ codes[d]);
  }
  unsigned bits = 0;
  for (int b = 0; b < kScaleBits; ++b) bits |= static_cast<unsigned>(parities[b] & 1) << b;
  const float scale = f32_from_bf16(static_cast<uint16_t>(bits));
  float* values = room_of(room, dim);
  for (int d = 0; d < dim; ++d) values[d] = static_cast<float>(codes[d]) * scale;
  return {DType::kF32, reinterpret_cast<const std::byte*>(values)};
}

void write_vector(const RowFormat& format, const ConstTensorView& from, int64_t token, int64_t head,
                  int dim, std::byte* out) {
  const int64_t index = from.offset(token, head);
  if (!format.dtype.is_coded()) {
    cpu::convert_elements(from.dtype, from.data, index, dim, format.dtype.elements(), out);
    return;
  }
  thread_local std::vector<float> room;
  float* values = room_of(room, dim);
  cpu::convert_elements(from.dtype, from.data, index, dim, DType::kF32, values);
  encode(values, dim, out);
}

}  // namespace

void write_row(const RowFormat& format, const ConstTensorView& k, const ConstTensorView& v,
               int64_t token, int64_t head, std::byte* row) {
  write_vector(format, k, token, head, format.key_dim, row);
  write_vector(format, v, token, head, format.value_dim, row + format.key_bytes());
  const int64_t used = format.used_bytes();
  std::memset(row + used, 0, static_cast<size_t>(format.bytes() - used));
}

RowElements row_key(const RowFormat& format, const std::byte* row) {
  if (!format.dtype.is_coded()) return {format.dtype.elements(), row};
  thread_local std::vector<float> room;
  return decode(row, format.key_dim, room);
}

RowElements row_value(const RowFormat& format, const std::byte* row) {
  row += format.key_bytes();
  if (!format.dtype.is_coded()) return {format.dtype.elements(), row};
  thread_local std::vector<float> room;
  return decode(row, format.value_dim, room);
}

}  // namespace fasa::cpu
