// Decode steps of the tape through Runtime::run_layers: tensors at fixed addresses, filled before
// each step.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <vector>

#include "tests/support/tape.h"

namespace fasa::testing {

class GraphedSteps {
 public:
  // All steps run on `stream`.
  GraphedSteps(Device& device, Runtime& runtime, StreamView stream, int max_tokens)
      : device_(device), runtime_(runtime), stream_(stream) {
    const Geometry& g = runtime.geometry();
    const auto tokens = static_cast<size_t>(max_tokens);
    for (int layer = 0; layer < g.layers; ++layer) {
      for (const int width : {g.kv_heads * g.key_dim, g.kv_heads * g.value_dim,
                              g.query_heads * g.key_dim, g.query_heads * g.value_dim}) {
        tensors_.push_back(device.allocate(MemorySpace::kDevice,
                                           tokens * static_cast<size_t>(width) * sizeof(float),
                                           "graphed tensors"));
      }
    }
  }

  // One token of each part; returns the attention outputs, [layers][tokens][query_heads][dim].
  std::vector<float> step(std::span<const Part> parts) {
    std::vector<StepSequence> step;
    for (const Part& part : parts) step.push_back({part.sequence, 1, StepMode::kDecode});
    fill(parts);
    runtime_.begin_step(step);
    try {
      run(static_cast<int64_t>(parts.size()));
      runtime_.end_step();
    } catch (...) {
      runtime_.abort_step();
      throw;
    }
    return results(static_cast<int64_t>(parts.size()));
  }

  std::function<void(int layer)> on_layer;  // called while the layers are enqueued
  int64_t enqueued = 0;                     // how often layers were enqueued

 private:
  enum Kind : size_t { kKeys, kValues, kQueries, kOut, kKinds };
  Buffer& tensor(int layer, Kind kind) {
    return tensors_[static_cast<size_t>(layer) * kKinds + kind];
  }

  void fill(std::span<const Part> parts) {
    const Geometry& g = runtime_.geometry();
    for (int layer = 0; layer < g.layers; ++layer) {
      put(parts, layer, kKeys, TapeKind::kKey, g.kv_heads * g.key_dim);
      put(parts, layer, kValues, TapeKind::kValue, g.kv_heads * g.value_dim);
      put(parts, layer, kQueries, TapeKind::kQuery, g.query_heads * g.key_dim);
    }
  }
  void put(std::span<const Part> parts, int layer, Kind kind, TapeKind tape, int width) {
    std::vector<float> host;
    for (const Part& part : parts) {
      for (int i = 0; i < width; ++i) {
        host.push_back(tape_value(part.seed, layer, part.start, tape, i));
      }
    }
    device_.copy(tensor(layer, kind).data(), host.data(), host.size() * sizeof(float),
                 CopyKind::kHostToDevice, stream_);
  }

  void run(int64_t tokens) {
    const uint64_t shape[] = {reinterpret_cast<uintptr_t>(this)};
    runtime_.run_layers(stream_, shape, [&] {
      ++enqueued;
      const Geometry& g = runtime_.geometry();
      const auto view = [&](int layer, Kind kind, int heads, int dim) {
        return TensorView::dense(tensor(layer, kind).data(), DType::kF32, tokens, heads, dim);
      };
      for (int layer = 0; layer < g.layers; ++layer) {
        if (on_layer) on_layer(layer);
        if (!g.is_shared(layer)) {
          runtime_.append(layer, view(layer, kKeys, g.kv_heads, g.key_dim),
                          view(layer, kValues, g.kv_heads, g.value_dim), stream_);
        }
        runtime_.attend(layer, view(layer, kQueries, g.query_heads, g.key_dim),
                        view(layer, kOut, g.query_heads, g.value_dim), nullptr, stream_);
      }
    });
  }

  std::vector<float> results(int64_t tokens) {
    const Geometry& g = runtime_.geometry();
    std::vector<float> all;
    for (int layer = 0; layer < g.layers; ++layer) {
      const auto count = static_cast<size_t>(tokens * g.query_heads * g.value_dim);
      std::vector<float> one(count);
      device_.copy(one.data(), tensor(layer, kOut).data(), count * sizeof(float),
                   CopyKind::kDeviceToHost, stream_);
      device_.synchronize(stream_);
      all.insert(all.end(), one.begin(), one.end());
    }
    return all;
  }

  Device& device_;
  Runtime& runtime_;
  const StreamView stream_;
  std::vector<Buffer> tensors_;
};

}  // namespace fasa::testing
