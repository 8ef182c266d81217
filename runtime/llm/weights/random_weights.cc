#include "runtime/llm/weights/random_weights.h"

namespace fasa {
namespace {

// SplitMix64's finaliser (Steele, Lea, Flood 2014).
uint64_t mixed(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

uint64_t hash_of(const std::string& name) {  // FNV-1a: the same everywhere
  uint64_t hash = 0xcbf29ce484222325u;
  for (const char letter : name) hash = (hash ^ static_cast<uint8_t>(letter)) * 0x100000001b3u;
  return hash;
}

constexpr float kSpread = 0.02f * 1.7320508f;  // of a standard deviation of 0.02

}  // namespace

bool RandomWeights::has(const std::string& name) const {
  const std::lock_guard lock(mutex_);
  return shapes_.contains(name);
}

WeightView RandomWeights::require(const std::string& name, std::span<const int64_t> shape) const {
  const std::lock_guard lock(mutex_);
  const auto& kept =
      shapes_.try_emplace(name, std::vector<int64_t>(shape.begin(), shape.end())).first->second;
  WeightView view;
  view.dtype = DType::kBF16;
  view.shape = kept;
  view.seed = mixed(seed_ + hash_of(name));
  const bool is_vector = shape.size() == 1;
  view.spread = is_vector ? 0 : kSpread;
  view.base = is_vector && name.ends_with(".weight") ? 1 : 0;
  return view;
}

// Four elements a number.
void read_random(const WeightView& view, int64_t first, int64_t count, float* out) {
  uint64_t word = 0;
  for (int64_t i = first; i < first + count; ++i) {
    if (i == first || i % 4 == 0) {
      word = mixed(view.seed + static_cast<uint64_t>(i / 4) * 0x9e3779b97f4a7c15u);
    }
    const auto part = static_cast<int32_t>(word >> (16 * (i % 4)) & 0xffffu);
    const float unit = static_cast<float>(2 * part - 65535) * (1.0f / 65536.0f);
    out[i - first] = view.base + view.spread * unit;
  }
}

}  // namespace fasa
