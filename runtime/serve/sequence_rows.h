// Keys and values of a sequence as bytes, out of a runtime and into one: [layers][k [tokens, kv_heads,
// key_dim], v [tokens, kv_heads, value_dim]] of a run of tokens. What went out and comes in again is
// stored as it was, bit for bit: coded rows travel as f32, which code to the same row again.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "offload/device.h"
#include "runtime/base/dtype.h"
#include "runtime/base/ids.h"
#include "runtime/doors/runtime.h"

namespace fasa::serve {

class SequenceRows {
 public:
  // For runs of up to `most_tokens`, whose bytes of one layer take device memory. All outlive it.
  // Throws BudgetError.
  SequenceRows(Runtime& runtime, Device& device, StreamView stream, int64_t most_tokens);

  uint64_t token_bytes() const;  // of all layers
  int64_t most_tokens() const { return most_tokens_; }

  // Of tokens first, first + 1, ... into `rows`. Waits for them.
  void read(SequenceId sequence, int64_t first, int64_t tokens, std::span<std::byte> rows);
  // Tokens `first`, ... of a run of `run_tokens`, behind those that the sequence has: one step.
  // Throws BudgetError where it has no room; nothing has changed then.
  void append(SequenceId sequence, std::span<const std::byte> rows, int64_t run_tokens,
              int64_t first, int64_t tokens);

 private:
  struct Part;  // a layer's keys, or its values
  Part part(std::byte* staged, int dim) const;
  Part keys() const;
  Part values() const;
  void append_layer(int layer, std::span<const std::byte> rows, int64_t run_tokens, int64_t first,
                    int64_t tokens);

  Runtime& runtime_;
  Device& device_;
  const StreamView stream_;
  const DType dtype_;
  const int64_t most_tokens_;
  Buffer staged_;  // device: keys, then values of one layer
};

}  // namespace fasa::serve
