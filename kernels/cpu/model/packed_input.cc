#include "kernels/cpu/model/packed_input.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>

#include "kernels/cpu/model/elementwise.h"
#include "kernels/cpu/model/vector_clones.h"

namespace fasa::cpu {
namespace {

constexpr int64_t kBlock = kBlockPlaces;

int64_t element_bytes(PackedInputKind kind) {
  switch (kind) {
    case PackedInputKind::kF32:
      return 4;
    case PackedInputKind::kBF16:
    case PackedInputKind::kInt16:
    case PackedInputKind::kInt8InInt16:
      return 2;
    case PackedInputKind::kInt8:
      return 1;
  }
  return 0;
}

// A block as whole numbers of at most `most`, and what one of them stands for: NaN if there is a
// NaN or an infinity.
FASA_VECTOR_CLONES
float round_block(const float* x, float most, int32_t* whole) {
  // Adding it rounds to nearest, ties to even, for magnitudes below 2^22.
  constexpr float kHalfless = 12582912;  // 1.5 * 2^23
  int32_t largest = 0;                   // bits of magnitudes are in order, those of NaN last
  for (int64_t i = 0; i < kBlock; ++i) {
    const int32_t magnitude = std::bit_cast<int32_t>(x[i]) & 0x7fffffff;
    largest = magnitude > largest ? magnitude : largest;
  }
  const float scale = std::bit_cast<float>(largest) / most;
  const bool is_normal =
      scale >= std::numeric_limits<float>::min() && scale <= std::numeric_limits<float>::max();
  const float factor = is_normal ? 1 / scale : 0;
  const int32_t mask = is_normal ? -1 : 0;
  for (int64_t i = 0; i < kBlock; ++i) {
    const float rounded = x[i] * factor + kHalfless;
    whole[i] = (std::bit_cast<int32_t>(rounded) - std::bit_cast<int32_t>(kHalfless)) & mask;
  }
  return scale - scale == 0 ? scale : std::numeric_limits<float>::quiet_NaN();
}

// A row as f32 by place: `x` itself, or a copy in `values`.
const float* by_place(const PackedInputShape& shape, const std::byte* x,
                      std::vector<float>* values) {
  const bool in_order = shape.order.empty() && shape.places == shape.inputs;
  if (in_order && shape.dtype == DType::kF32) return reinterpret_cast<const float*>(x);
  values->resize(std::max(values->size(), static_cast<size_t>(shape.places)));
  float* const to = values->data();
  if (in_order && shape.dtype == DType::kBF16) {
    const auto* const from = reinterpret_cast<const uint16_t*>(x);
    for (int64_t place = 0; place < shape.places; ++place) to[place] = f32_from_bf16(from[place]);
    return to;
  }
  for (int64_t place = 0; place < shape.places; ++place) {
    const int64_t input = shape.order.empty() ? place : shape.order[static_cast<size_t>(place)];
    to[place] = input < 0 || input >= shape.inputs ? 0 : load_element(shape.dtype, x, input);
  }
  return to;
}

// Sixteen partial sums, added in pairs, which a compiler can vectorise.
float sum_of(const float* x, int64_t count) {
  float lanes[16] = {};
  for (int64_t i = 0; i < count; i += 16) {
    for (int lane = 0; lane < 16; ++lane) lanes[lane] += x[i + lane];
  }
  for (int width = 8; width > 0; width /= 2) {
    for (int lane = 0; lane < width; ++lane) lanes[lane] += lanes[lane + width];
  }
  return lanes[0];
}

}  // namespace

PackedInput::PackedInput(const PackedInputShape& shape, const void* x, int64_t rows)
    : rows_(rows), block_bytes_(kBlock * element_bytes(shape.kind)) {
  data_ = std::make_unique_for_overwrite<std::byte[]>(
      static_cast<size_t>(shape.places / kBlock * rows * block_bytes_));
  step_numbers_.resize(static_cast<size_t>((shape.places + shape.step - 1) / shape.step * rows));
  for_each_row(rows, shape.places * 2, [&](int64_t row) {
    thread_local std::vector<float> values;
    const auto* const at = static_cast<const std::byte*>(x);
    convert(shape, by_place(shape, at + row * shape.inputs * dtype_bytes(shape.dtype), &values),
            row);
  });
}

void PackedInput::convert(const PackedInputShape& shape, const float* x, int64_t row) {
  for (int64_t block = 0; block < shape.places / kBlock; ++block) {
    const float* const from = x + block * kBlock;
    std::byte* const to = data_.get() + (block * rows_ + row) * block_bytes_;
    if (is_whole(shape.kind)) {
      store_block(shape, from, block, row);
    } else if (shape.kind == PackedInputKind::kF32) {
      std::memcpy(to, from, static_cast<size_t>(block_bytes_));
    } else {
      auto* const halves = reinterpret_cast<uint16_t*>(to);
      for (int64_t i = 0; i < kBlock; ++i) {
        halves[i] = static_cast<uint16_t>(std::bit_cast<uint32_t>(from[i]) >> 16);
      }
    }
  }
  if (is_whole(shape.kind)) return;
  for (int64_t first = 0; first < shape.places; first += shape.step) {
    step_numbers_[static_cast<size_t>(first / shape.step * rows_ + row)].sum =
        sum_of(x + first, std::min(shape.step, shape.places - first));
  }
}

void PackedInput::store_block(const PackedInputShape& shape, const float* x, int64_t block,
                              int64_t row) {
  // Byte order of 8 places: (0, 4, 1, 5), then (2, 6, 3, 7).
  constexpr int64_t kSpot[8] = {0, 2, 4, 6, 1, 3, 5, 7};
  int32_t whole[kBlock];
  const float scale =
      round_block(x, shape.kind == PackedInputKind::kInt16 ? 32767.0f : 127.0f, whole);
  std::byte* const to = data_.get() + (block * rows_ + row) * block_bytes_;
  if (shape.kind == PackedInputKind::kInt8) {
    auto* const bytes = reinterpret_cast<int8_t*>(to);
    for (int64_t i = 0; i < kBlock; ++i) {
      bytes[i / 8 * 8 + kSpot[i % 8]] = static_cast<int8_t>(whole[i]);
    }
  } else {
    auto* const words = reinterpret_cast<int16_t*>(to);
    for (int64_t i = 0; i < kBlock; ++i) words[i] = static_cast<int16_t>(whole[i]);
  }
  for (int64_t first = 0; first < kBlock; first += shape.step) {
    int32_t total = 0;  // below 2^20: exact as f32
    for (int64_t i = 0; i < shape.step; ++i) total += whole[first + i];
    const int64_t step = (block * kBlock + first) / shape.step;
    step_numbers_[static_cast<size_t>(step * rows_ + row)] = {
        static_cast<float>(total) * scale, scale * shape.unit, -shape.centre * total};
  }
}

}  // namespace fasa::cpu
