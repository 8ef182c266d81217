// Attention inputs without a model: the q, k, v of a (sequence seed, layer, position) always have
// the same bits, so that differently split runs can be compared.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "offload/device.h"
#include "runtime/fasa.hpp"

namespace fasa::testing {

// Splitmix64, mapped to a float in [-1, 1).
inline float noise(uint64_t seed) {
  uint64_t z = seed + 0x9e3779b97f4a7c15ull;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
  z ^= z >> 31;
  return static_cast<float>(static_cast<int64_t>(z >> 40) - (1 << 23)) /
         static_cast<float>(1 << 23);
}

enum class TapeKind : uint64_t { kKey = 1, kValue = 2, kQuery = 3 };

// Element `i` of a token's [heads, dim].
inline float tape_value(uint64_t seed, int layer, int64_t position, TapeKind kind, int i) {
  const uint64_t place =
      ((seed * 1000003 + static_cast<uint64_t>(position)) * 131 + static_cast<uint64_t>(layer)) *
          7 +
      static_cast<uint64_t>(kind);
  return 2.0f * noise(place * 65537 + static_cast<uint64_t>(i));
}

// One sequence of a step.
struct Part {
  SequenceId sequence;
  uint64_t seed;  // of the sequence's tokens
  int64_t start;  // committed tokens
  int tokens;
  StepMode mode;
};

// The number of tokens in all parts.
inline int64_t tokens_of(std::span<const Part> parts) {
  int64_t tokens = 0;
  for (const Part& part : parts) tokens += part.tokens;
  return tokens;
}

// Runs steps over a runtime and returns the attention outputs, [layers][tokens][query_heads][dim].
class Tape {
 public:
  Tape(Device& device, Runtime& runtime, DType dtype)
      : device_(device),
        runtime_(runtime),
        dtype_(dtype),
        stream_(device.create_stream(StreamPriority::kNormal, "test compute")) {}

  std::vector<float> step(std::span<const Part> parts) {
    begin(parts);
    std::vector<float> out = layers(parts);
    runtime_.end_step();
    return out;
  }

  void begin(std::span<const Part> parts) {
    std::vector<StepSequence> step;
    for (const Part& part : parts) step.push_back({part.sequence, part.tokens, part.mode});
    if (on_begin) on_begin(parts);
    runtime_.begin_step(step);
  }

  void append_only(std::span<const Part> parts) { layers(parts, false); }

  // `most`: the number of layers before the step is aborted.
  std::vector<float> layers(std::span<const Part> parts, bool attend = true, int most = INT32_MAX) {
    const Geometry& g = runtime_.geometry();
    std::vector<float> all;
    for (int layer = 0; layer < std::min(most, g.layers); ++layer) {
      append_layer(parts, layer, attend, all);
    }
    return all;
  }

  // A piece of the sequence's open chunk in one layer; its outputs, if it attends.
  std::vector<float> piece(const Part& part, int layer, bool attend = true) {
    runtime_.prompts().begin_piece(part.sequence, layer, part.tokens);
    std::vector<float> out;
    append_layer({&part, 1}, layer, attend, out);
    runtime_.prompts().end_piece();
    return out;
  }

 private:
  // Appends to one layer and adds its outputs to `all`, unless only rows are wanted.
  void append_layer(std::span<const Part> parts, int layer, bool attend, std::vector<float>& all) {
    const Geometry& g = runtime_.geometry();
    const int64_t tokens = tokens_of(parts);
    {
      Buffer k = keys(parts, layer);
      Buffer v = values(parts, layer);
      Buffer q = queries(parts, layer);
      const HeadShape heads = g.heads(layer);
      const size_t bytes =
          static_cast<size_t>(tokens * g.query_heads * heads.value_dim) * sizeof(float);
      Buffer out = device_.allocate(MemorySpace::kDevice, bytes, "test output");
      Buffer sums;
      const size_t sums_bytes = static_cast<size_t>(tokens * g.query_heads) * sizeof(float);
      if (lse != nullptr) sums = device_.allocate(MemorySpace::kDevice, sums_bytes, "test sums");
      if (!g.is_shared(layer)) {
        runtime_.append(
            layer, ConstTensorView::dense(k.data(), dtype_, tokens, heads.kv_heads, heads.key_dim),
            ConstTensorView::dense(v.data(), dtype_, tokens, heads.kv_heads, heads.value_dim),
            stream_.view());
      }
      if (!attend) {
        device_.synchronize(stream_.view());
        return;
      }
      runtime_.attend(
          layer, ConstTensorView::dense(q.data(), dtype_, tokens, g.query_heads, heads.key_dim),
          TensorView::dense(out.data(), DType::kF32, tokens, g.query_heads, heads.value_dim),
          sums.as<float>(), stream_.view());
      if (lse != nullptr) {
        lse->resize(lse->size() + sums_bytes / sizeof(float));
        device_.copy(lse->data() + lse->size() - sums_bytes / sizeof(float), sums.data(),
                     sums_bytes, CopyKind::kDeviceToHost, stream_.view());
      }
      const size_t at = all.size();
      all.resize(at + bytes / sizeof(float));
      device_.copy(all.data() + at, out.data(), bytes, CopyKind::kDeviceToHost, stream_.view());
      device_.synchronize(stream_.view());
    }
  }

 public:
  // Uploaded when the call returns.
  Buffer keys(std::span<const Part> parts, int layer) {
    const HeadShape heads = runtime_.geometry().heads(layer);
    return tensor(parts, layer, TapeKind::kKey, heads.kv_heads, heads.key_dim);
  }
  Buffer values(std::span<const Part> parts, int layer) {
    const HeadShape heads = runtime_.geometry().heads(layer);
    return tensor(parts, layer, TapeKind::kValue, heads.kv_heads, heads.value_dim);
  }
  Buffer queries(std::span<const Part> parts, int layer) {
    const Geometry& g = runtime_.geometry();
    return tensor(parts, layer, TapeKind::kQuery, g.query_heads, g.heads(layer).key_dim);
  }
  DType dtype() const { return dtype_; }
  StreamView stream() const { return stream_.view(); }
  std::function<void(std::span<const Part>)> on_begin;  // called before every step
  // Layers that share keys and values in this geometry append copies of those that they share.
  std::optional<Geometry> copied;
  // receives the log-sum-exps if not null, [layers][tokens][query_heads]
  std::vector<float>* lse = nullptr;

 private:
  Buffer tensor(std::span<const Part> parts, int layer, TapeKind kind, int heads, int dim) {
    const int64_t tokens = tokens_of(parts);
    std::vector<std::byte> host(static_cast<size_t>(tokens * heads * dim * dtype_bytes(dtype_)));
    int64_t at = 0;
    for (const Part& part : parts) {
      const bool copies = copied && kind != TapeKind::kQuery;
      const int of = copies ? copied->kv_layer(layer) : layer;
      for (int64_t t = 0; t < part.tokens; ++t) {
        for (int i = 0; i < heads * dim; ++i) {
          store_element(dtype_, host.data(), at++,
                        tape_value(part.seed, of, part.start + t, kind, i));
        }
      }
    }
    Buffer buffer = device_.allocate(MemorySpace::kDevice, host.size(), "test input");
    device_.copy(buffer.data(), host.data(), host.size(), CopyKind::kHostToDevice, stream_.view());
    device_.synchronize(stream_.view());
    return buffer;
  }

  Device& device_;
  Runtime& runtime_;
  DType dtype_;
  Stream stream_;
};

// Bit for bit.
inline bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

}  // namespace fasa::testing
