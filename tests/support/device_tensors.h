// Tensors of the tape in a device's memory, and reading tensors back.
#pragma once

#include <cstdint>
#include <vector>

#include "offload/device.h"
#include "runtime/base/tensor_view.h"
#include "tests/support/tape.h"

namespace fasa::testing {

class DeviceTensors {
 public:
  explicit DeviceTensors(Device& device)
      : device_(device), stream_(device.create_stream(StreamPriority::kNormal, "test")) {}

  StreamView stream() const { return stream_.view(); }
  void synchronize() { device_.synchronize(stream_.view()); }
  void clear() {
    synchronize();
    buffers_.clear();
  }

  // [tokens, heads, dim] of positions start, start + 1, ...
  TensorView tape(uint64_t seed, int layer, int64_t start, int64_t tokens, TapeKind kind, int heads,
                  int dim, DType dtype = DType::kF32) {
    std::vector<std::byte> host(static_cast<size_t>(tokens * heads * dim * dtype_bytes(dtype)));
    int64_t at = 0;
    for (int64_t t = 0; t < tokens; ++t) {
      for (int i = 0; i < heads * dim; ++i) {
        store_element(dtype, host.data(), at++, tape_value(seed, layer, start + t, kind, i));
      }
    }
    return TensorView::dense(upload(host), dtype, tokens, heads, dim);
  }
  TensorView zeros(int64_t tokens, int heads, int dim, DType dtype = DType::kF32) {
    const std::vector<std::byte> host(
        static_cast<size_t>(tokens * heads * dim * dtype_bytes(dtype)));
    return TensorView::dense(upload(host), dtype, tokens, heads, dim);
  }
  std::byte* upload(const std::vector<std::byte>& host) {
    buffers_.push_back(device_.allocate(MemorySpace::kDevice, host.size(), "test tensor"));
    device_.copy(buffers_.back().data(), host.data(), host.size(), CopyKind::kHostToDevice,
                 stream_.view());
    synchronize();
    return buffers_.back().data();
  }

  std::vector<float> floats(const void* data, int64_t count) {
    std::vector<float> host(static_cast<size_t>(count));
    device_.copy(host.data(), data, host.size() * sizeof(float), CopyKind::kDeviceToHost,
                 stream_.view());
    synchronize();
    return host;
  }
  // The elements of a dense tensor.
  std::vector<float> values(const TensorView& view) {
    std::vector<std::byte> host(
        static_cast<size_t>(view.tokens * view.heads * view.dim * dtype_bytes(view.dtype)));
    device_.copy(host.data(), view.data, host.size(), CopyKind::kDeviceToHost, stream_.view());
    synchronize();
    std::vector<float> values;
    for (int64_t i = 0; i < view.tokens * view.heads * view.dim; ++i) {
      values.push_back(load_element(view.dtype, host.data(), i));
    }
    return values;
  }

 private:
  Device& device_;
  Stream stream_;
  std::vector<Buffer> buffers_;
};

// Heads [first, first + count) of a tensor.
template <typename View>
View heads_of(View view, int first, int count) {
  using Bytes = std::conditional_t<std::is_const_v<std::remove_pointer_t<decltype(view.data)>>,
                                   const std::byte, std::byte>;
  view.data = static_cast<Bytes*>(view.data) + first * view.head_stride * dtype_bytes(view.dtype);
  view.heads = count;
  return view;
}

}  // namespace fasa::testing
