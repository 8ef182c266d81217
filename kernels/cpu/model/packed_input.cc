#include "kernels/cpu/model/packed_input.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace fasa::cpu {
namespace {

constexpr int64_t kRounded = 32;  // places on one scale of int8

// Rounds to nearest, ties to even, for magnitudes below 2^22: the sum with this constant has no
// bits for fractions.
inline float round_small(float value) {
  constexpr float kHalfless = 12582912;  // 1.5 * 2^23
  return value + kHalfless - kHalfless;
}

int64_t element_bytes(PackedInputKind kind) {
  switch (kind) {
    case PackedInputKind::kF32:
    case PackedInputKind::kInt8InF32:
      return 4;
    case PackedInputKind::kBF16:
      return 2;
    case PackedInputKind::kInt8:
      return 1;
  }
  return 0;
}

bool is_rounded(PackedInputKind kind) {
  return kind == PackedInputKind::kInt8 || kind == PackedInputKind::kInt8InF32;
}

bool is_there(const PackedInputShape& shape) {
  const bool same = (shape.kind == PackedInputKind::kF32 && shape.dtype == DType::kF32) ||
                    (shape.kind == PackedInputKind::kBF16 && shape.dtype == DType::kBF16);
  return same && shape.order.empty() && shape.places == shape.inputs;
}

// The input of a place; -1: none.
int64_t input_of(const PackedInputShape& shape, int64_t place) {
  const int64_t input = shape.order.empty() ? place : shape.order[static_cast<size_t>(place)];
  return input < shape.inputs ? input : -1;
}

// Sixteen partial sums, added in pairs, which a compiler can vectorise.
template <typename Read>
float sum_of(int64_t count, const Read& read) {
  float lanes[16] = {};
  for (int64_t i = 0; i < count; i += 16) {
    for (int lane = 0; lane < 16; ++lane) lanes[lane] += read(i + lane);
  }
  for (int width = 8; width > 0; width /= 2) {
    for (int lane = 0; lane < width; ++lane) lanes[lane] += lanes[lane + width];
  }
  return lanes[0];
}

}  // namespace

PackedInput::PackedInput(const PackedInputShape& shape, const void* x, int64_t rows)
    : places_(shape.places), steps_((shape.places + shape.step - 1) / shape.step) {
  row_bytes_ = places_ * element_bytes(shape.kind);
  data_ = static_cast<const std::byte*>(x);
  const bool copied = !is_there(shape);
  if (copied) copy_.resize(static_cast<size_t>(row_bytes_ * rows));
  if (is_rounded(shape.kind)) {
    scales_.resize(static_cast<size_t>(steps_ * rows));
    totals_.resize(scales_.size());
  }
  if (shape.sums) sums_.resize(static_cast<size_t>(steps_ * rows));
  const auto* rows_at = static_cast<const std::byte*>(x);
  if (copied) data_ = copy_.data();
  for (int64_t row = 0; row < rows; ++row) {
    if (copied) convert(shape, rows_at + row * shape.inputs * dtype_bytes(shape.dtype), row);
    if (shape.sums) add_up(shape, row);
  }
}

void PackedInput::convert(const PackedInputShape& shape, const std::byte* x, int64_t row) {
  std::byte* const out = copy_.data() + row * row_bytes_;
  if (shape.kind == PackedInputKind::kBF16) {
    const auto* from = reinterpret_cast<const uint16_t*>(x);
    auto* to = reinterpret_cast<uint16_t*>(out);
    for (int64_t place = 0; place < places_; ++place) {
      const int64_t input = input_of(shape, place);
      to[place] = input < 0 ? uint16_t{0} : from[input];
    }
    return;
  }
  std::vector<float> rounded;
  float* to = reinterpret_cast<float*>(out);
  if (shape.kind != PackedInputKind::kF32) {
    rounded.resize(static_cast<size_t>(places_));
    to = rounded.data();
  }
  for (int64_t place = 0; place < places_; ++place) {
    const int64_t input = input_of(shape, place);
    to[place] = input < 0 ? 0 : load_element(shape.dtype, x, input);
  }
  if (shape.kind != PackedInputKind::kF32) round_bytes(shape, rounded.data(), row);
}

void PackedInput::round_bytes(const PackedInputShape& shape, const float* x, int64_t row) {
  // Byte order of 8 places: (0, 4, 1, 5), then (2, 6, 3, 7).
  constexpr int64_t kSpot[8] = {0, 2, 4, 6, 1, 3, 5, 7};
  std::byte* const out = copy_.data() + row * row_bytes_;
  for (int64_t first = 0; first < places_; first += kRounded) {
    float most = 0;
    for (int64_t i = 0; i < kRounded; ++i) most = std::max(most, std::abs(x[first + i]));
    const float scale = most / 127;
    const float factor = scale > 0 ? 1 / scale : 0;
    float whole[kRounded];
    for (int64_t i = 0; i < kRounded; ++i) {
      whole[i] = std::clamp(round_small(x[first + i] * factor), -127.0f, 127.0f);
    }
    if (shape.kind == PackedInputKind::kInt8) {
      auto* const bytes = reinterpret_cast<int8_t*>(out) + first;
      for (int64_t i = 0; i < kRounded; ++i) {
        bytes[i / 8 * 8 + kSpot[i % 8]] = static_cast<int8_t>(whole[i]);
      }
    } else {
      std::copy_n(whole, kRounded, reinterpret_cast<float*>(out) + first);
    }
    const int64_t part = std::min(shape.step, kRounded);
    for (int64_t at = 0; at < kRounded; at += part) {
      const auto step = static_cast<size_t>(row * steps_ + (first + at) / shape.step);
      scales_[step] = scale;
      totals_[step] = sum_of(part, [&](int64_t i) { return whole[at + i]; });
    }
  }
}

void PackedInput::add_up(const PackedInputShape& shape, int64_t row) {
  const std::byte* const x = data_ + row * row_bytes_;
  for (int64_t step = 0; step < steps_; ++step) {
    const int64_t first = step * shape.step;
    const int64_t count = std::min(shape.step, places_ - first);
    const auto at = static_cast<size_t>(row * steps_ + step);
    switch (shape.kind) {
      case PackedInputKind::kF32:
        sums_[at] =
            sum_of(count, [&](int64_t i) { return reinterpret_cast<const float*>(x)[first + i]; });
        break;
      case PackedInputKind::kBF16:
        sums_[at] = sum_of(count, [&](int64_t i) {
          return f32_from_bf16(reinterpret_cast<const uint16_t*>(x)[first + i]);
        });
        break;
      case PackedInputKind::kInt8:
      case PackedInputKind::kInt8InF32:
        sums_[at] = scales_[at] * totals_[at];
        break;
    }
  }
}

}  // namespace fasa::cpu
