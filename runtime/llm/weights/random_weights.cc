#include "runtime/llm/weights/random_weights.h"

#include <algorithm>

#include "runtime/base/dtype.h"

namespace fasa {
namespace {

// SplitMix64's finaliser (Steele, Lea, Flood 2014).
uint64_t mixed(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

uint64_t hash_of(const std::string& name) {  // FNV-1a: equal on all platforms
  uint64_t hash = 0xcbf29ce484222325u;
  for (const char letter : name) hash = (hash ^ static_cast<uint8_t>(letter)) * 0x100000001b3u;
  return hash;
}

constexpr uint64_t kStep = 0x9e3779b97f4a7c15u;
constexpr float kSpread = 0.02f * 1.7320508f;  // standard deviation 0.02, if uniform

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
  const bool factor = name.ends_with("layer_scalar") || name.ends_with("scale");
  view.base = is_vector && (factor || name.ends_with(".weight")) ? 1 : 0;
  return view;
}

RandomCodes::RandomCodes(const WeightView& view, const PackedFormat& format)
    : PackedTensor(view.shape[0], view.shape[1]),
      seed_(view.seed),
      scale_(view.spread / static_cast<float>(format.centre)) {
  set_format(format);
}

// Each input takes eight bits of a random number.
void RandomCodes::read(int64_t first, int64_t count, CodeRows* out) const {
  const int shift = 8 - format().bits;
  const int64_t groups = (inputs() + format().group - 1) / format().group;
  for (int64_t i = 0; i < count; ++i) {
    uint8_t* const codes = out->codes(i);
    for (int64_t input = 0; input < inputs(); ++input) {
      const int64_t element = (first + i) * inputs() + input;
      const uint64_t word = mixed(seed_ + static_cast<uint64_t>(element / 8) * kStep);
      codes[input] = static_cast<uint8_t>((word >> (8 * (element % 8)) & 0xff) >> shift);
    }
    std::fill_n(out->scales(i), groups, f32_from_bf16(bf16_from_f32(scale_)));
  }
}

// Each random number gives four elements.
void read_random(const WeightView& view, int64_t first, int64_t count, float* out) {
  uint64_t word = 0;
  for (int64_t i = first; i < first + count; ++i) {
    if (i == first || i % 4 == 0) {
      word = mixed(view.seed + static_cast<uint64_t>(i / 4) * kStep);
    }
    const auto part = static_cast<int32_t>(word >> (16 * (i % 4)) & 0xffffu);
    const float unit = static_cast<float>(2 * part - 65535) * (1.0f / 65536.0f);
    out[i - first] = view.base + view.spread * unit;
  }
}

}  // namespace fasa
