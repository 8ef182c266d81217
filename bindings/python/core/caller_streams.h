// CUDA streams passed to calls from Python.
#pragma once

#include <cstdint>
#include <optional>
#include <unordered_map>

#include "runtime/fasa.hpp"

namespace fasa::python {

// A cudaStream_t as a number, like PyTorch's cuda_stream, 0 for the default stream: the call only
// enqueues. None: the object's own stream, and the work is done on return.
using StreamChoice = std::optional<uint64_t>;

// The same for calls of a step's layers; below 0 means none.
inline StreamChoice stream_at(int64_t number) {
  return number < 0 ? StreamChoice() : StreamChoice(static_cast<uint64_t>(number));
}

// The caller's streams that a device uses: each is registered once.
class CallerStreams {
 public:
  explicit CallerStreams(Device& device) : device_(device) {}
  // Throws UsageError if the device has no streams, or if the stream belongs to another device or
  // was destroyed.
  StreamView of(uint64_t number);

 private:
  Device& device_;
  std::unordered_map<uint64_t, Stream> known_;
};

}  // namespace fasa::python
