#include "runtime/llm/generation/random_context.h"

#include <algorithm>
#include <cstring>
#include <random>
#include <vector>

namespace fasa {
namespace {

// Tensors are different offsets into one pool of noise: fresh noise for each would take longer than
// the work measured.
constexpr size_t kShift = 64;
constexpr size_t kShifts = 1024;

// A key and a value of each KV head, in the layers with most.
int64_t row_elements(const Geometry& geometry) {
  const auto elements = [](const HeadShape& heads) {
    return int64_t{heads.kv_heads} * (heads.key_dim + heads.value_dim);
  };
  const HeadShape usual{geometry.kv_heads, geometry.key_dim, geometry.value_dim, 0};
  return std::max(elements(usual), elements(geometry.window_heads));
}

std::vector<std::byte> noise(size_t values, DType dtype) {
  std::vector<std::byte> pool(values * static_cast<size_t>(dtype_bytes(dtype)));
  std::mt19937 random(1);
  for (size_t i = 0; i < values; ++i) {
    const float value = static_cast<float>(random()) * (2.0f / 4294967296.0f) - 1;
    if (dtype == DType::kF32) {
      std::memcpy(pool.data() + i * sizeof(value), &value, sizeof(value));
    } else {
      const uint16_t bits = bf16_from_f32(value);
      std::memcpy(pool.data() + i * sizeof(bits), &bits, sizeof(bits));
    }
  }
  return pool;
}

}  // namespace

uint64_t random_context_bytes(const ModelConfig& config, std::optional<DType> dtype) {
  return static_cast<uint64_t>(kRandomChunk * row_elements(config.geometry()) *
                               dtype_bytes(dtype.value_or(config.auto_dtype())));
}

void append_random_context(Model& model, Runtime& runtime, SequenceId sequence, int64_t tokens) {
  if (tokens == 0) return;
  Device& device = model.device();
  const Geometry geometry = model.config().geometry();
  const int64_t element = dtype_bytes(model.dtype());
  const int64_t row = row_elements(geometry);
  const auto bytes = static_cast<size_t>(random_context_bytes(model.config(), model.dtype()));
  const std::vector<std::byte> pool =
      noise(static_cast<size_t>(kRandomChunk * row) + kShift * kShifts, model.dtype());
  const Buffer memory = device.allocate(MemorySpace::kDevice, bytes, "random context");
  size_t round = 0;
  for (int64_t done = 0; done < tokens; done += kRandomChunk) {
    const auto count = static_cast<int>(std::min<int64_t>(kRandomChunk, tokens - done));
    const StepSequence step{sequence, count, StepMode::kPrefill};
    runtime.begin_step({&step, 1});
    if (geometry.linear.layers > 0) runtime.linear_parts();  // states stay as they are
    for (int layer = 0; layer < geometry.storing_layers(); ++layer) {
      const HeadShape heads = geometry.heads(layer);
      const auto part = [&](const std::byte* data, int dim) {
        return ConstTensorView::dense(data, model.dtype(), count, heads.kv_heads, dim);
      };
      const std::byte* const values =
          memory.data() + int64_t{count} * heads.kv_heads * heads.key_dim * element;
      const size_t shift = round++ % kShifts * kShift * static_cast<size_t>(element);
      device.copy(memory.data(), pool.data() + shift, static_cast<size_t>(count * row * element),
                  CopyKind::kHostToDevice, model.stream());
      runtime.append(layer, part(memory.data(), heads.key_dim), part(values, heads.value_dim),
                     model.stream());
    }
    runtime.end_step();
    device.synchronize(model.stream());
  }
}

}  // namespace fasa
