// Random weights, for measuring a model's shape without its files.
#pragma once

#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "runtime/llm/weights/packed_tensor.h"
#include "runtime/llm/weights/weight_source.h"

namespace fasa {

// Has every tensor that is requested: matrices are uniform with a standard deviation of 0.02, as
// models are initialised; norms are one, biases zero. Values depend on seed, name and index only,
// so a model is the same on every device.
class RandomWeights final : public WeightSource {
 public:
  explicit RandomWeights(uint64_t seed) : seed_(seed) {}

  bool has(const std::string& name) const override;
  std::vector<std::string> names() const override { return {}; }
  WeightView require(const std::string& name, std::span<const int64_t> shape) const override;
  const std::string& source() const override { return source_; }

 private:
  uint64_t seed_;
  std::string source_ = "random weights";
  mutable std::mutex mutex_;
  mutable std::map<std::string, std::vector<int64_t>> shapes_;  // views point to them
};

// A random matrix in the format of a rounded one: codes from the seed, one scale. Rounding random
// numbers instead would take minutes for 8 B weights.
class RandomCodes final : public PackedTensor {
 public:
  RandomCodes(const WeightView& view, const PackedFormat& format);
  void read(int64_t first, int64_t count, CodeRows* out) const override;

 private:
  uint64_t seed_;
  float scale_;
};

// Elements [first, first + count) of a view without data.
void read_random(const WeightView& view, int64_t first, int64_t count, float* out);

}  // namespace fasa
