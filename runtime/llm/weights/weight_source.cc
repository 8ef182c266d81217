#include "runtime/llm/weights/weight_source.h"

#include <algorithm>
#include <cstring>

#include "runtime/llm/weights/packed_tensor.h"
#include "runtime/llm/weights/random_weights.h"

namespace fasa {
namespace {

uint16_t load_u16(const std::byte* data, int64_t index) {
  uint16_t bits = 0;
  std::memcpy(&bits, data + index * 2, sizeof(bits));
  return bits;
}

// Reads part of a row by reading the whole row.
void read_packed(const PackedTensor& matrix, int64_t first, int64_t count, float* out) {
  const int64_t width = matrix.inputs();
  std::vector<float> row;
  while (count > 0) {
    const int64_t in_row = first % width;
    if (in_row == 0 && count >= width) {
      const int64_t rows = count / width;
      matrix.dequantise(first / width, rows, out);
      first += rows * width;
      out += rows * width;
      count -= rows * width;
      continue;
    }
    row.resize(static_cast<size_t>(width));
    matrix.dequantise(first / width, 1, row.data());
    const int64_t part = std::min(count, width - in_row);
    std::copy_n(row.data() + in_row, part, out);
    first += part;
    out += part;
    count -= part;
  }
}

}  // namespace

int64_t WeightView::elements() const {
  int64_t count = 1;
  for (const int64_t length : shape) count *= length;
  return count;
}

void WeightView::read(int64_t first, int64_t count, float* out) const {
  if (packed != nullptr) return read_packed(*packed, first, count, out);
  if (data == nullptr) return read_random(*this, first, count, out);
  switch (dtype) {
    case DType::kF32:
      if (count > 0) std::memcpy(out, data + first * 4, static_cast<size_t>(count) * 4);
      break;
    case DType::kF16:
      for (int64_t i = 0; i < count; ++i) out[i] = f32_from_f16(load_u16(data, first + i));
      break;
    case DType::kBF16:
      for (int64_t i = 0; i < count; ++i) out[i] = f32_from_bf16(load_u16(data, first + i));
      break;
  }
}

void WeightView::read_bf16(int64_t first, int64_t count, uint16_t* out) const {
  if (dtype == DType::kBF16 && data != nullptr) {
    if (count > 0) std::memcpy(out, data + first * 2, static_cast<size_t>(count) * 2);
    return;
  }
  // A packed matrix is read in whole rows.
  const int64_t at_once = packed == nullptr ? 256 : packed->inputs();
  std::vector<float> values(static_cast<size_t>(at_once));
  for (int64_t done = 0; done < count; done += at_once) {
    const int64_t part = std::min(at_once, count - done);
    read(first + done, part, values.data());
    for (int64_t i = 0; i < part; ++i)
      out[done + i] = bf16_from_f32(values[static_cast<size_t>(i)]);
  }
}

}  // namespace fasa
