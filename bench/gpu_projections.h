// Decode's products by packed weights on a GPU, with the bytes that they read.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <vector>

#include "kernels/packed_params.h"
#include "offload/cuda/cuda_device.h"
#include "tests/support/filled_runtime.h"

namespace fasa::bench {

// Shapes of Llama-3.1-8B in 4 bits with zeros, groups of 64; four matrices in turn, so that they
// come from memory and not from the L2. Less than 1 GiB. Contents are noise: zeros take less power
// and give a higher clock. `rate`: bytes per second of memory.
inline nlohmann::json packed_projections(CudaDevice& device, double rate) {
  struct Shape {
    const char* name;
    int64_t outputs, inputs;
  };
  constexpr Shape kShapes[] = {
      {"qkv", 6144, 4096}, {"output", 4096, 4096}, {"gate_up", 28672, 4096}, {"down", 4096, 14336}};
  constexpr int kMatrices = 4;
  constexpr int kRounds = 16;
  const PackedFormat format{4, 64, ScaleKind::kF16, OffsetKind::kZero, false, 8};
  const Stream stream = device.create_stream(StreamPriority::kNormal, "projections");
  const Event before = device.create_event(), after = device.create_event();
  nlohmann::json results = nlohmann::json::object();
  for (const Shape& shape : kShapes) {
    const PackedPanel panel(format, shape.inputs);
    const int64_t bytes = shape.outputs / kPackedColumns * panel.bytes;
    const auto matrix_bytes = static_cast<size_t>(bytes);
    const Buffer weights =
        device.allocate(MemorySpace::kDevice, kMatrices * matrix_bytes, "projections");
    const std::vector<uint16_t> noise = random_bf16((matrix_bytes + 1) / 2, 1);
    for (size_t i = 0; i < kMatrices; ++i) {
      device.copy(weights.data() + i * matrix_bytes, noise.data(), matrix_bytes,
                  CopyKind::kHostToDevice, stream.view());
    }
    device.synchronize(stream.view());
    for (const int64_t rows : {1, 2, 4, 8}) {
      const Buffer x = device.allocate(MemorySpace::kDevice,
                                       static_cast<size_t>(rows * shape.inputs) * 2, "projections");
      const Buffer y = device.allocate(
          MemorySpace::kDevice, static_cast<size_t>(rows * shape.outputs) * 4, "projections");
      device.copy(x.data(), noise.data(), x.bytes(), CopyKind::kHostToDevice, stream.view());
      device.synchronize(stream.view());
      ProjectPackedParams params{
          .rows = rows,
          .columns = shape.outputs,
          .y_stride = shape.outputs,
          .weights = {.format = format, .panel = panel, .inputs = shape.inputs, .panels = nullptr},
          .x = x.data(),
          .y = y.as<float>()};
      double best = 1;
      for (int repeat = 0; repeat < 3; ++repeat) {
        device.record(before.view(), stream.view());
        for (int i = 0; i < kRounds; ++i) {
          params.weights.panels = weights.data() + i % kMatrices * bytes;
          device.enqueue(params, stream.view(), {});
        }
        device.record(after.view(), stream.view());
        device.synchronize(after.view());
        const double seconds = device.seconds_at(after.view()) - device.seconds_at(before.view());
        best = std::min(best, seconds / kRounds);
      }
      const double floor = static_cast<double>(bytes) / rate;
      results[fmt::format("{}/{}", shape.name, rows)] = {
          {"us", best * 1e6}, {"floor_us", floor * 1e6}, {"share", floor / best}};
    }
  }
  return results;
}

}  // namespace fasa::bench
