// Streams that calls from Python name.
#pragma once

#include <cstdint>
#include <optional>
#include <unordered_map>

#include "runtime/fasa.hpp"

namespace fasa::python {

// A cudaStream_t as a number, as PyTorch's cuda_stream has it, 0 for the default stream: the call
// only enqueues. None: a stream of the object's own, and its work is done on return.
using StreamChoice = std::optional<uint64_t>;

// The same for calls that name one in every layer of a step; below 0: none.
inline StreamChoice stream_at(int64_t number) {
  return number < 0 ? StreamChoice() : StreamChoice(static_cast<uint64_t>(number));
}

// Those that a device was lent: it knows a stream by a record of its own, made once.
class CallerStreams {
 public:
  explicit CallerStreams(Device& device) : device_(device) {}
  // Throws UsageError where the device has none, for another device's, and for one that is gone.
  StreamView of(uint64_t number);

 private:
  Device& device_;
  std::unordered_map<uint64_t, Stream> known_;
};

}  // namespace fasa::python
