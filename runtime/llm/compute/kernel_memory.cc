#include "runtime/llm/compute/kernel_memory.h"

#include <algorithm>

namespace fasa {
namespace {

size_t aligned(size_t bytes) { return (bytes + 255) / 256 * 256; }

size_t frequency_bytes(const EngineParts& parts) {
  size_t count = 0;
  for (const Rotation& rotation : parts.rotations) count += rotation.frequencies.size();
  return count * sizeof(float);
}

size_t product_scratch(const Device& device) {
  const auto bytes = device.traits().project_scratch;
  return bytes == nullptr ? 0 : bytes();
}

}  // namespace

KernelMemory::KernelMemory(const EngineParts& parts)
    : device_(parts.device), linear_(parts.linear.shape().layers > 0), stream_(parts.stream) {
  const size_t bytes = frequency_bytes(parts);
  const size_t product = aligned(product_scratch(device_));
  fixed_ = device_.allocate(MemorySpace::kDevice,
                            aligned(bytes) + product + parts.weights.bytes().kernel_scratch,
                            "scratch of projections");
  scratch_.product = fixed_.data() + aligned(bytes);
  scratch_.packed = scratch_.product + product;
  const Buffer upload_buffer =
      device_.allocate(MemorySpace::kHost, bytes, "upload of rotary frequencies");
  auto* staged = upload_buffer.as<float>();
  for (const Rotation& rotation : parts.rotations) {
    frequencies_.push_back(fixed_.as<float>() + (staged - upload_buffer.as<float>()));
    staged = std::copy(rotation.frequencies.begin(), rotation.frequencies.end(), staged);
  }
  device_.copy(fixed_.data(), upload_buffer.data(), bytes, CopyKind::kHostToDevice, stream_);
  device_.synchronize(stream_);
}

void KernelMemory::reserve(const Activations& larger) {
  // At most one part a token.
  const size_t parts = linear_ ? static_cast<size_t>(larger.tokens()) * sizeof(LinearPart) : 0;
  const size_t bytes =
      parts + static_cast<size_t>(larger.tokens() + larger.rows()) * sizeof(int32_t);
  Buffer inputs = device_.allocate(MemorySpace::kDevice, bytes, "positions of a step");
  upload_buffer_ = device_.allocate(MemorySpace::kHost, bytes, "positions of a step");
  inputs_ = std::move(inputs);
}

void KernelMemory::stage(const StepShape& step) {
  auto* const parts = upload_buffer_.as<LinearPart>();
  auto* const staged =
      reinterpret_cast<int32_t*>(std::copy(step.linear.begin(), step.linear.end(), parts));
  std::copy(step.logit_rows.begin(), step.logit_rows.end(),
            std::copy(step.positions.begin(), step.positions.end(), staged));
}

StepInputs KernelMemory::copy_staged(const StepShape& step, OperationTag tag) const {
  const size_t count = step.positions.size() + step.logit_rows.size();
  const size_t bytes = step.linear.size_bytes() + count * sizeof(int32_t);
  device_.copy(inputs_.data(), upload_buffer_.data(), bytes, CopyKind::kHostToDevice, stream_, tag);
  const auto* const parts = inputs_.as<LinearPart>();
  const auto* const positions = reinterpret_cast<const int32_t*>(parts + step.linear.size());
  return {.positions = positions,
          .logit_rows = positions + step.tokens,
          .linear = {parts, step.linear.size()}};
}

}  // namespace fasa
