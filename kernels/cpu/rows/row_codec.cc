// Processes sixteen codes at a time, each of which holds one bit of the scale.
#include "kernels/cpu/rows/row_codec.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "kernels/cpu/rows/row_convert.h"
#include "kernels/row_codec_inl.h"

namespace fasa::cpu {
namespace {

// Thread-local; grows only, so that decoding does not allocate.
float* room_of(std::vector<float>& room, int dim) {
  if (room.size() < static_cast<size_t>(dim)) room.resize(static_cast<size_t>(dim));
  return room.data();
}

// The compiler's vectors, of a width that every processor has: it does not vectorise these loops by
// itself, and splits wider ones.
typedef float Floats __attribute__((vector_size(16)));
typedef int32_t Ints __attribute__((vector_size(16)));
constexpr int kLanes = 4;
constexpr int kParts = kScaleBits / kLanes;
constexpr int32_t kMagnitude = 0x7fffffff;

uint32_t largest_bits(const float* values, int dim) {
  uint32_t largest = 0;
  for (int d = 0; d < dim; ++d) {
    const uint32_t bits = std::bit_cast<uint32_t>(values[d]) & uint32_t{kMagnitude};
    largest = bits > largest ? bits : largest;
  }
  return largest;
}

// For four of the codes that hold one bit each: their parities, and the code to move if its bit is
// wrong, minus the bit's index.
struct Holders {
  Ints parities = {};
  Ints moved = {};
  Floats farthest = {-1, -1, -1, -1};

  // Adds the values of dimensions `first` and on, and returns their codes. As codec::row_code and
  // row_code_distance.
  Ints add(Floats values, float inverse, int32_t first) {
    constexpr float kMagic = 12582912.0f;  // round_code's
    constexpr auto kTop = static_cast<float>(kLargestCode);
    const Floats products = values * inverse;
    const Floats places = products == products ? products : Floats{};
    Floats rounded = (places + kMagic) - kMagic;
    rounded = rounded < kTop ? rounded : Floats{} + kTop;
    rounded = rounded > -kTop ? rounded : Floats{} - kTop;
    const Ints at_top = (Floats)((Ints)rounded & kMagnitude) >= kTop;
    const auto rests = (Floats)((Ints)(places - rounded) & kMagnitude);
    const Floats distances = at_top ? Floats{} - 0.5f : rests;
    const Ints farther = distances > farthest;
    farthest = farther ? distances : farthest;
    moved = farther ? Ints{} + first : moved;
    const Ints codes = __builtin_convertvector(rounded, Ints);
    parities ^= codes;
    return codes;
  }
};

// The last block may have fewer than sixteen dimensions: zeros fill it and are never moved.
void encode(const float* values, int dim, std::byte* out) {
  auto* codes = reinterpret_cast<int8_t*>(out);
  const uint16_t scale = codec::row_scale(largest_bits(values, dim));
  const float inverse = codec::row_inverse(scale);
  Holders holders[kParts];
  for (int first = 0; first < dim; first += kScaleBits) {
    const int count = std::min(kScaleBits, dim - first);
    Floats block[kParts] = {};
    std::memcpy(block, values + first, static_cast<size_t>(count) * sizeof(float));
    int32_t wide[kScaleBits];
    for (int part = 0; part < kParts; ++part) {
      Holders with = holders[part];
      const Ints of = with.add(block[part], inverse, first);
      std::memcpy(wide + part * kLanes, &of, sizeof(of));
      for (int i = std::max(0, count - part * kLanes); i < kLanes; ++i) {
        with.farthest[i] = holders[part].farthest[i];
        with.moved[i] = holders[part].moved[i];
      }
      holders[part] = with;
    }
    for (int b = 0; b < count; ++b) codes[first + b] = static_cast<int8_t>(wide[b]);
  }
  for (int b = 0; b < kScaleBits; ++b) {
    const Holders& of = holders[b / kLanes];
    if ((of.parities[b % kLanes] & 1) == (scale >> b & 1)) continue;
    const int d = of.moved[b % kLanes] + b;
    const codec::RowCode code = codec::row_code(values[d], inverse);
    codes[d] = static_cast<int8_t>(codes[d] + codec::other_neighbour(code));
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
