// The C interface over a fake CUDA runtime: a device whose memory host code does not access, filled
// with noise.
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <memory>
#include <vector>

#include "bindings/c/handles.h"
#include "offload/open_device.h"
#include "tests/support/fake_cuda.h"

#define OK(call) ASSERT_EQ(call, FASA_OK) << fasa_last_error()

namespace fasa {

inline constexpr int kLayers = 2, kKv = 2, kQuery = 4, kDim = 16, kTokens = 130, kPage = 64;

inline fasa_tensor tensor(std::byte* data, int tokens, int heads) {
  return {data, FASA_F32, 3, {tokens, heads, kDim, 0}, {0, 0, 0, 0}};
}

// Allocates device memory filled with noise.
inline Buffer filled(Device& device, size_t elements, int seed) {
  std::vector<float> host(elements);
  for (size_t i = 0; i < elements; ++i) {
    host[i] = std::sin(static_cast<float>(i * 31 + static_cast<size_t>(seed) * 977));
  }
  Buffer buffer = device.allocate(MemorySpace::kDevice, elements * sizeof(float), "test input");
  const Stream stream = device.create_stream(StreamPriority::kNormal, "upload");
  device.copy(buffer.data(), host.data(), elements * sizeof(float), CopyKind::kHostToDevice,
              stream.view());
  device.synchronize(stream.view());
  return buffer;
}

class FakeGpuApis : public ::testing::Test {
 protected:
  FakeGpuApis() {
    DeviceOptions options;
    options.name = "cuda:0";
    options.threads = 2;
    device_.device = open_device(options, fake_.platform());
    device_.name = "cuda:0";
    geometry_ = FASA_GEOMETRY_INIT;
    geometry_.layers = kLayers;
    geometry_.kv_heads = kKv;
    geometry_.query_heads = kQuery;
    geometry_.key_dim = kDim;
    options_ = FASA_OPTIONS_INIT;
    options_.geometry = &geometry_;
    options_.device = &device_;
    for (int layer = 0; layer < kLayers; ++layer) {
      const auto l = static_cast<size_t>(layer);
      keys_[l] = filled(device(), kTokens * kKv * kDim, layer);
      values_[l] = filled(device(), kTokens * kKv * kDim, 10 + layer);
      queries_[l] = filled(device(), kTokens * kQuery * kDim, 20 + layer);
    }
    out_ = device().allocate(MemorySpace::kDevice, kTokens * kQuery * kDim * sizeof(float), "out");
  }

  Device& device() { return *device_.device; }
  fasa_tensor rows(const Buffer& buffer, int first, int tokens, int heads) {
    const auto offset = static_cast<size_t>(first * heads * kDim) * sizeof(float);
    return tensor(buffer.data() + offset, tokens, heads);
  }
  std::vector<float> output(int tokens) {
    std::vector<float> host(static_cast<size_t>(tokens * kQuery * kDim));
    const Stream stream = device().create_stream(StreamPriority::kNormal, "download");
    device().copy(host.data(), out_.data(), host.size() * sizeof(float), CopyKind::kDeviceToHost,
                  stream.view());
    device().synchronize(stream.view());
    return host;
  }

  FakeCuda fake_;
  fasa_device device_;
  fasa_geometry geometry_;
  fasa_options options_;
  std::array<Buffer, kLayers> keys_, values_, queries_;
  Buffer out_;
};

}  // namespace fasa
