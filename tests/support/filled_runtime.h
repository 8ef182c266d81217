// A runtime with one sequence of random keys and values of any length, appended in chunks.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "offload/device.h"
#include "runtime/api/sequences/runtime.h"

namespace fasa {

// Llama-3.1-8B's attention, with as many layers as wanted.
Geometry llama_8b(int layers);

// The first `chunks` FCs of every head, as a Runtime takes them.
std::vector<int16_t> first_chunk_dims(const Geometry& geometry, int chunks);

// `values` random bf16 values, nearly of the standard normal distribution.
std::vector<uint16_t> random_bf16(size_t values, uint64_t seed);

class FilledRuntime {
 public:
  static constexpr int kRoom = 512;  // decode steps after the fill

  // Throws BudgetError.
  FilledRuntime(const DeviceOptions& options, const Config& config, const Geometry& geometry,
                const std::vector<int16_t>& slice_dims, int64_t tokens);
  FilledRuntime(std::shared_ptr<Device> device, const Config& config, const Geometry& geometry,
                const std::vector<int16_t>& slice_dims, int64_t tokens);

  Device& device() { return *device_; }
  Runtime& runtime() { return runtime_; }
  StreamView stream() const { return stream_.view(); }
  SequenceId sequence() const { return sequence_; }

 private:
  void fill(int64_t tokens);

  std::shared_ptr<Device> device_;
  Runtime runtime_;
  Stream stream_;
  SequenceId sequence_;
};

}  // namespace fasa
