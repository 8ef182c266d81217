// A matrix of a GGUF file as codes and per-group scales and offsets.
#pragma once

#include <memory>

#include "runtime/llm/gguf/gguf_header.h"
#include "runtime/llm/weights/packed_tensor.h"

namespace fasa {

// Row order within heads. Files store rotary pairs adjacent; the model uses two halves.
struct GgufRows {
  int64_t head_dim = 0;  // 0: rows lie in the model's order
  int64_t in_file(int64_t row) const {
    if (head_dim == 0) return row;
    const int64_t in_head = row % head_dim;
    return row - in_head + 2 * (in_head % (head_dim / 2)) + in_head / (head_dim / 2);
  }
};

// `data`: the tensor's bytes, which must outlive the result. Also takes F32, F16 and BF16, which do
// not pack.
std::unique_ptr<PackedTensor> make_gguf_matrix(const GgufTensor& tensor, const std::byte* data,
                                               const GgufRows& rows);

}  // namespace fasa
