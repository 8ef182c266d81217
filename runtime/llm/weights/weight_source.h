// A source of a model's tensors by name: its files, or a random generator (random_weights.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "runtime/base/dtype.h"

namespace fasa {

class PackedTensor;

// One of: a tensor's data (little endian, unaligned), a packed matrix, or, with neither, random
// numbers from a seed. Valid while its source exists.
struct WeightView {
  DType dtype = DType::kF32;
  std::span<const int64_t> shape;
  const std::byte* data = nullptr;
  const PackedTensor* packed = nullptr;
  uint64_t seed = 0;
  float spread = 0;  // random elements: uniform in (-spread, spread), plus `base`
  float base = 0;
  int64_t elements() const;
  // Elements [first, first + count) as f32. Reading whole rows of a packed matrix is cheapest.
  void read(int64_t first, int64_t count, float* out) const;
  void read_bf16(int64_t first, int64_t count, uint16_t* out) const;  // rounded
};

class WeightSource {
 public:
  virtual ~WeightSource() = default;
  virtual bool has(const std::string& name) const = 0;
  virtual std::vector<std::string> names() const = 0;
  // Throws InputError naming the tensor if it is missing or has another shape.
  virtual WeightView require(const std::string& name, std::span<const int64_t> shape) const = 0;
  virtual const std::string& source() const = 0;  // file or index name, for messages
};

}  // namespace fasa
