#include "runtime/llm/weights/rounded_tensor.h"

#include <algorithm>
#include <cmath>

#include "runtime/base/dtype.h"

namespace fasa {
namespace {

struct Codes {
  int low;
  int high;
  float rounded(float value, float inverse) const {
    if (std::isnan(value)) return 0;
    return std::clamp(std::nearbyint(value * inverse), static_cast<float>(low),
                      static_cast<float>(high));
  }
};

// Scales are stored in bf16, whose range covers any weight.
float as_bf16(float value) { return f32_from_bf16(bf16_from_f32(value)); }

double squared_error(const float* values, int64_t count, const Codes& codes, float scale) {
  const float inverse = 1 / scale;
  double error = 0;
  for (int64_t i = 0; i < count; ++i) {
    const float off = values[i] - codes.rounded(values[i], inverse) * scale;
    error += static_cast<double>(off) * static_cast<double>(off);
  }
  return error;
}

// The value of largest magnitude is mapped to the lowest code, since codes reach one further down
// than up; or it is clipped, if the finer scale reduces the error of the others.
float best_scale(const float* values, int64_t count, const Codes& codes) {
  float most = 0;
  for (int64_t i = 0; i < count; ++i) {
    if (std::abs(values[i]) > std::abs(most)) most = values[i];
  }
  if (most == 0 || !std::isfinite(most)) return 1;
  float best = as_bf16(most / static_cast<float>(codes.low));
  double least = squared_error(values, count, codes, best);
  const int candidates = codes.high < 127 ? 8 : 2;
  for (int i = -candidates; i <= candidates; ++i) {
    const float spread = static_cast<float>(codes.low) + 0.12f * static_cast<float>(i);
    const float scale = as_bf16(most / spread);
    if (scale == 0 || !std::isfinite(1 / scale)) continue;
    const double error = squared_error(values, count, codes, scale);
    if (error < least) {
      least = error;
      best = scale;
    }
  }
  return std::isfinite(1 / best) && best != 0 ? best : 1;
}

}  // namespace

RoundedTensor::RoundedTensor(const WeightView& view, const Rounding& rounding)
    : PackedTensor(view.shape[0], view.shape[1]), view_(view) {
  set_format({.bits = rounding.bits,
              .group = rounding.group,
              .scale = ScaleKind::kBF16,
              .offset = OffsetKind::kNone,
              .centre = 1 << (rounding.bits - 1)});
}

void RoundedTensor::read(int64_t first, int64_t count, CodeRows* out) const {
  const int centre = format().centre;
  const Codes codes{-centre, centre - 1};
  std::vector<float> row(static_cast<size_t>(inputs()));
  for (int64_t i = 0; i < count; ++i) {
    view_.read((first + i) * inputs(), inputs(), row.data());
    for (int64_t begin = 0; begin < inputs(); begin += format().group) {
      const int64_t size = std::min<int64_t>(format().group, inputs() - begin);
      const float scale = best_scale(row.data() + begin, size, codes);
      out->scales(i)[begin / format().group] = scale;
      for (int64_t k = begin; k < begin + size; ++k) {
        const float code = codes.rounded(row[static_cast<size_t>(k)], 1 / scale);
        out->codes(i)[k] = static_cast<uint8_t>(static_cast<int>(code) + centre);
      }
    }
  }
}

}  // namespace fasa
