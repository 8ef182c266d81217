// A matrix of a GGUF file as codes and per-group scales and offsets.
#pragma once

#include <memory>

#include "runtime/llm/gguf/gguf_header.h"
#include "runtime/llm/weights/packed_tensor.h"

namespace fasa {

// The order of a tensor's rows in a file.
struct GgufRows {
  int64_t head_dim = 0;  // 0: as in the model
  // 0: within a head, rotary pairs are adjacent, where the model uses two halves. Above: all
  // queries, all keys, all values, where the model has the three of each head side by side.
  int64_t stacked_heads = 0;

  int64_t in_file(int64_t row) const {
    if (head_dim == 0) return row;
    const int64_t in_head = row % head_dim;
    if (stacked_heads > 0) {
      const int64_t block = row / head_dim;  // of one head's queries, keys or values
      return (block % 3 * stacked_heads + block / 3) * head_dim + in_head;
    }
    return row - in_head + 2 * (in_head % (head_dim / 2)) + in_head / (head_dim / 2);
  }
};

// The tensor's bytes must outlive the result. Also takes F32, F16 and BF16, which do not pack.
std::unique_ptr<PackedTensor> make_gguf_matrix(const GgufTensor& tensor, const GgufRows& rows);

}  // namespace fasa
