#include "runtime/serve/sequence_rows.h"

#include "kernels/row_format.h"
#include "offload/operation_tag.h"

namespace fasa::serve {

struct SequenceRows::Part {
  std::byte* staged;
  int heads;
  int dim;
  size_t token_bytes;
  DType dtype;

  TensorView view(int64_t tokens) const {
    return TensorView::dense(staged, dtype, tokens, heads, dim);
  }
};

SequenceRows::SequenceRows(Runtime& runtime, Device& device, StreamView stream, int64_t most_tokens)
    : runtime_(runtime),
      device_(device),
      stream_(stream),
      dtype_(runtime.row_dtype().is_coded() ? DType::kF32 : runtime.row_dtype().elements()),
      most_tokens_(most_tokens) {
  const auto layers = static_cast<uint64_t>(runtime.geometry().layers);
  staged_ = device.allocate(MemorySpace::kDevice,
                            token_bytes() / layers * static_cast<uint64_t>(most_tokens),
                            "rows on their way to the disk");
}

SequenceRows::Part SequenceRows::part(std::byte* staged, int dim) const {
  const int heads = runtime_.geometry().kv_heads;
  return {.staged = staged,
          .heads = heads,
          .dim = dim,
          .token_bytes = static_cast<size_t>(heads) * static_cast<size_t>(dim) *
                         static_cast<size_t>(dtype_bytes(dtype_)),
          .dtype = dtype_};
}

SequenceRows::Part SequenceRows::keys() const {
  return part(staged_.data(), runtime_.geometry().key_dim);
}

SequenceRows::Part SequenceRows::values() const {
  return part(staged_.data() + keys().token_bytes * static_cast<size_t>(most_tokens_),
              runtime_.geometry().value_dim);
}

uint64_t SequenceRows::token_bytes() const {
  return static_cast<uint64_t>(runtime_.geometry().layers) *
         (keys().token_bytes + values().token_bytes);
}

void SequenceRows::read(SequenceId sequence, int64_t first, int64_t tokens,
                        std::span<std::byte> rows) {
  std::byte* out = rows.data();
  for (int layer = 0; layer < runtime_.geometry().layers; ++layer) {
    runtime_.read(sequence, layer, first, keys().view(tokens), values().view(tokens), stream_);
    for (const Part& part : {keys(), values()}) {
      const size_t bytes = part.token_bytes * static_cast<size_t>(tokens);
      device_.copy(out, part.staged, bytes, CopyKind::kDeviceToHost, stream_);
      out += bytes;
    }
  }
  device_.synchronize(stream_);
}

void SequenceRows::append(SequenceId sequence, std::span<const std::byte> rows, int64_t run_tokens,
                          int64_t first, int64_t tokens) {
  const StepSequence step{sequence, static_cast<int>(tokens), StepMode::kPrefill};
  runtime_.begin_step({&step, 1});
  try {
    for (int layer = 0; layer < runtime_.geometry().layers; ++layer) {
      append_layer(layer, rows, run_tokens, first, tokens);
    }
  } catch (...) {
    runtime_.abort_step();
    throw;
  }
  runtime_.end_step();
  device_.synchronize(stream_);  // `rows` are the caller's again
}

void SequenceRows::append_layer(int layer, std::span<const std::byte> rows, int64_t run_tokens,
                                int64_t first, int64_t tokens) {
  const std::byte* in = rows.data() + static_cast<size_t>(layer) * static_cast<size_t>(run_tokens) *
                                          (keys().token_bytes + values().token_bytes);
  for (const Part& part : {keys(), values()}) {
    device_.copy(part.staged, in + part.token_bytes * static_cast<size_t>(first),
                 part.token_bytes * static_cast<size_t>(tokens), CopyKind::kHostToDevice, stream_);
    in += part.token_bytes * static_cast<size_t>(run_tokens);
  }
  runtime_.append(layer, keys().view(tokens), values().view(tokens), stream_);
}

}  // namespace fasa::serve
