#include "runtime/api/stateless/sparse_decode.h"

#include <fmt/format.h>

#include <type_traits>

#include "runtime/api/sequences/runtime.h"
#include "runtime/api/tensor_check.h"
#include "runtime/base/error.h"
#include "runtime/calibrate/fc_map.h"

namespace fasa {
namespace {

void require_batch(const char* name, const BatchTensorView& view, int64_t batch, int64_t heads,
                   int64_t tokens, int64_t dim) {
  const bool missing = view.data == nullptr;
  if (!missing && view.batch == batch && view.heads == heads && view.tokens == tokens &&
      view.dim == dim) {
    return;
  }
  throw UsageError(fmt::format("{} is [{}, {}, {}, {}]{}; expected [{}, {}, {}, {}]", name,
                               view.batch, view.heads, view.tokens, view.dim,
                               missing ? " and null" : "", batch, heads, tokens, dim));
}

void check(const SparseDecode& call, const Geometry& geometry) {
  const int64_t batch = call.q.tokens;
  const int64_t tokens = call.k.tokens;
  if (batch < 1 || tokens < 1 || tokens > INT32_MAX) {
    throw UsageError(
        fmt::format("sparse_decode over {} tokens of {} entries; allowed: at least one "
                    "each, tokens up to {}",
                    tokens, batch, INT32_MAX));
  }
  require_shape("q", call.q, batch, geometry.query_heads, geometry.key_dim);
  require_batch("k", call.k, batch, geometry.kv_heads, tokens, geometry.key_dim);
  require_batch("v", call.v, batch, geometry.kv_heads, tokens, geometry.value_dim);
  require_shape("out", call.out, batch, geometry.query_heads, geometry.value_dim);
  if (!call.lengths.empty() && call.lengths.size() != static_cast<size_t>(batch)) {
    throw UsageError(
        fmt::format("{} lengths for {} entries; give one each", call.lengths.size(), batch));
  }
  for (const int64_t length : call.lengths) {
    if (length < 1 || length > tokens) {
      throw UsageError(
          fmt::format("length = {}; allowed: 1 to {}, the number of tokens of k", length, tokens));
    }
  }
}

// For a single step, keeping rows on another tier has no advantage over the device.
Config config_for(const Config& config, int layer) {
  Config one = config.only_layer(layer);
  one.placement.rows = RowPlacement::kDevice;
  one.prefetch.depth = 0;
  one.prefetch.predictor = PredictorKind::kNone;
  return one;
}

class Entry {
 public:
  Entry(Runtime& runtime, const SparseDecode& call, int64_t index, StreamView stream)
      : runtime_(runtime),
        call_(call),
        index_(index),
        stream_(stream),
        id_(runtime.create()),
        length_(call.lengths.empty() ? call.k.tokens : call.lengths[static_cast<size_t>(index)]) {}
  Entry(const Entry&) = delete;  // the sequence has one owner
  Entry& operator=(const Entry&) = delete;
  ~Entry() {
    try {
      runtime_.free(id_);
    } catch (const Error&) {
      // run() has already reported that the device failed.
    }
  }

  void run() {
    runtime_.reserve(id_, length_, 1);
    if (length_ > 1) append(0, length_ - 1, StepMode::kPrefill);
    append(length_ - 1, 1, StepMode::kDecode);
  }

 private:
  void append(int64_t first, int64_t tokens, StepMode mode) {
    const StepSequence part{id_, static_cast<int>(tokens), mode};
    runtime_.begin_step({&part, 1});
    try {
      runtime_.append(0, call_.k.tokens_of(index_, first, tokens),
                      call_.v.tokens_of(index_, first, tokens), stream_);
      if (mode == StepMode::kDecode) attend();
      runtime_.end_step();
    } catch (...) {
      runtime_.abort_step();
      throw;
    }
  }

  void attend() {
    const auto entry_of = [this](auto view) {
      using Bytes = std::conditional_t<std::is_const_v<std::remove_pointer_t<decltype(view.data)>>,
                                       const std::byte, std::byte>;
      view.data = static_cast<Bytes*>(view.data) + view.offset(index_, 0) * dtype_bytes(view.dtype);
      view.tokens = 1;
      return view;
    };
    float* lse = call_.lse;
    if (lse != nullptr) lse += index_ * call_.q.heads;
    runtime_.attend(0, entry_of(call_.q), entry_of(call_.out), lse, stream_);
  }

  Runtime& runtime_;
  const SparseDecode& call_;
  const int64_t index_;
  const StreamView stream_;
  const SequenceId id_;
  const int64_t length_;
};

}  // namespace

void sparse_decode(Device& device, const Config& config, const Geometry& geometry,
                   RowDType row_dtype, const std::vector<int16_t>& slice_dims,
                   const SparseDecode& call, StreamView stream) {
  geometry.validate();
  config.validate_for(geometry);
  const Geometry one = geometry.only_layer(call.layer);
  check(call, one);
  Runtime runtime(device, config_for(config, call.layer), one, row_dtype,
                  layer_of_slice_dims(slice_dims, geometry, call.layer), call.k.tokens);
  for (int64_t entry = 0; entry < call.q.tokens; ++entry) {
    Entry(runtime, call, entry, stream).run();
  }
}

}  // namespace fasa
