#include "runtime/synthetic/synthetic_inputs.h"

#include <algorithm>
#include <random>

#include "runtime/base/dtype.h"

namespace fasa {
namespace {

// Tensors are different windows into one pool: generating new noise for each would take longer than
// computing with it.
constexpr size_t kShift = 4099;
constexpr size_t kShifts = 256;

std::vector<uint16_t> noise(size_t values, uint64_t seed) {
  std::vector<uint16_t> pool(values);
  std::mt19937_64 random(seed);
  for (uint16_t& value : pool) {
    // For scores, a sum of four bytes is close enough to a normal distribution.
    const uint64_t bits = random();
    const auto sum = static_cast<int>((bits & 255) + (bits >> 8 & 255) + (bits >> 16 & 255) +
                                      (bits >> 24 & 255));
    value = bf16_from_f32(static_cast<float>(sum - 510) / 148.0f);
  }
  return pool;
}

size_t bytes_of(int64_t tokens, int heads, int dim) {
  return static_cast<size_t>(tokens * heads * dim) * sizeof(uint16_t);
}

}  // namespace

SyntheticInputs::SyntheticInputs(Device& device, const Geometry& geometry, int64_t tokens,
                                 bool noisy, uint64_t seed, StreamView stream)
    : device_(device), geometry_(geometry) {
  const size_t query = q_bytes(tokens);
  const size_t key = bytes_of(tokens, geometry.kv_heads, geometry.key_dim);
  const size_t value = bytes_of(tokens, geometry.kv_heads, geometry.value_dim);
  const size_t out = bytes_of(tokens, geometry.query_heads, geometry.value_dim);
  q_ = device.allocate(MemorySpace::kDevice, query, "synthetic queries");
  k_ = device.allocate(MemorySpace::kDevice, key, "synthetic keys");
  v_ = device.allocate(MemorySpace::kDevice, value, "synthetic values");
  out_ = device.allocate(MemorySpace::kDevice, out, "synthetic outputs");
  if (!noisy) return;
  pool_ = noise(std::max({query, key, value}) / sizeof(uint16_t) + kShift * kShifts, seed);
  shift(tokens, stream);
}

size_t SyntheticInputs::q_bytes(int64_t tokens) const {
  return bytes_of(tokens, geometry_.query_heads, geometry_.key_dim);
}

void SyntheticInputs::shift(int64_t tokens, StreamView stream) {
  if (pool_.empty()) return;
  const auto upload = [&](const Buffer& to, size_t bytes) {
    device_.copy(to.data(), pool_.data() + round_++ % kShifts * kShift, bytes,
                 CopyKind::kHostToDevice, stream);
  };
  upload(q_, q_bytes(tokens));
  upload(k_, bytes_of(tokens, geometry_.kv_heads, geometry_.key_dim));
  upload(v_, bytes_of(tokens, geometry_.kv_heads, geometry_.value_dim));
}

ConstTensorView SyntheticInputs::q(int64_t tokens) const {
  return ConstTensorView::dense(q_.data(), DType::kBF16, tokens, geometry_.query_heads,
                                geometry_.key_dim);
}
ConstTensorView SyntheticInputs::k(int64_t tokens) const {
  return ConstTensorView::dense(k_.data(), DType::kBF16, tokens, geometry_.kv_heads,
                                geometry_.key_dim);
}
ConstTensorView SyntheticInputs::v(int64_t tokens) const {
  return ConstTensorView::dense(v_.data(), DType::kBF16, tokens, geometry_.kv_heads,
                                geometry_.value_dim);
}
TensorView SyntheticInputs::out(int64_t tokens) const {
  return TensorView::dense(out_.data(), DType::kBF16, tokens, geometry_.query_heads,
                           geometry_.value_dim);
}

}  // namespace fasa
