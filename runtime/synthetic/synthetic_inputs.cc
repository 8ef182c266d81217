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

}  // namespace

SyntheticInputs::SyntheticInputs(Device& device, const Geometry& geometry, int64_t tokens,
                                 bool noisy, uint64_t seed, StreamView stream)
    : device_(device), geometry_(geometry) {
  const Bytes bytes = bytes_of(tokens);
  q_ = device.allocate(MemorySpace::kDevice, bytes.query, "synthetic queries");
  k_ = device.allocate(MemorySpace::kDevice, bytes.key, "synthetic keys");
  v_ = device.allocate(MemorySpace::kDevice, bytes.value, "synthetic values");
  out_ = device.allocate(MemorySpace::kDevice, bytes.out, "synthetic outputs");
  if (!noisy) return;
  const size_t largest = std::max({bytes.query, bytes.key, bytes.value});
  pool_ = noise(largest / sizeof(uint16_t) + kShift * kShifts, seed);
  shift(tokens, stream);
}

SyntheticInputs::Bytes SyntheticInputs::bytes_of(int64_t tokens) const {
  Bytes largest{};
  for (int layer = 0; layer < geometry_.layers; ++layer) {
    const HeadShape heads = geometry_.heads(layer);
    const auto raise = [&](size_t& most, int count, int dim) {
      most = std::max(most, static_cast<size_t>(tokens * count * dim) * sizeof(uint16_t));
    };
    raise(largest.query, geometry_.query_heads, heads.key_dim);
    raise(largest.key, heads.kv_heads, heads.key_dim);
    raise(largest.value, heads.kv_heads, heads.value_dim);
    raise(largest.out, geometry_.query_heads, heads.value_dim);
  }
  return largest;
}

void SyntheticInputs::shift(int64_t tokens, StreamView stream) {
  if (pool_.empty()) return;
  const auto upload = [&](const Buffer& to, size_t bytes) {
    device_.copy(to.data(), pool_.data() + round_++ % kShifts * kShift, bytes,
                 CopyKind::kHostToDevice, stream);
  };
  const Bytes bytes = bytes_of(tokens);
  upload(q_, bytes.query);
  upload(k_, bytes.key);
  upload(v_, bytes.value);
}

ConstTensorView SyntheticInputs::q(int layer, int64_t tokens) const {
  return ConstTensorView::dense(q_.data(), DType::kBF16, tokens, geometry_.query_heads,
                                geometry_.heads(layer).key_dim);
}
ConstTensorView SyntheticInputs::k(int layer, int64_t tokens) const {
  const HeadShape heads = geometry_.heads(layer);
  return ConstTensorView::dense(k_.data(), DType::kBF16, tokens, heads.kv_heads, heads.key_dim);
}
ConstTensorView SyntheticInputs::v(int layer, int64_t tokens) const {
  const HeadShape heads = geometry_.heads(layer);
  return ConstTensorView::dense(v_.data(), DType::kBF16, tokens, heads.kv_heads, heads.value_dim);
}
TensorView SyntheticInputs::out(int layer, int64_t tokens) const {
  return TensorView::dense(out_.data(), DType::kBF16, tokens, geometry_.query_heads,
                           geometry_.heads(layer).value_dim);
}

}  // namespace fasa
