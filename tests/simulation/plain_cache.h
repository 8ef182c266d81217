// The oracle: attention over a token history in plain arrays, computed anew for every question,
// without shared pages, tiers, streams or predictions. A runtime's outputs must equal it bit for
// bit, however the runtime came to hold the tokens.
#pragma once

#include <tbb/task_arena.h>

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "kernels/params.h"
#include "runtime/base/geometry.h"
#include "runtime/config/config.h"
#include "scheduler/step_settings.h"

namespace fasa::testing {

// A sequence's tokens: the writer of each. Writer, position and layer determine a token's key,
// value and query.
using History = std::vector<uint8_t>;

inline constexpr int kWriters = 4;
inline constexpr int kMaxTokens = 1536;  // per sequence
inline constexpr int kMaxLayers = 4;
inline constexpr int kMaxWidth = 96;  // heads x dimensions

enum class TokenPart : uint8_t { kKey, kValue, kQuery };
// [heads x dim] of a token. One writer gives every position the same values, so scores tie.
const float* token_values(int writer, int layer, int64_t position, TokenPart part);

// A layer's outputs: out [tokens][query_heads][value_dim], lse [tokens][query_heads].
struct Attended {
  std::vector<float> out;
  std::vector<float> lse;
};

class PlainCache {
 public:
  // Parameters as of Runtime; the device is always the cpu.
  PlainCache(const Config& config, const Geometry& geometry, RowDType row_dtype,
             const std::vector<int16_t>& slice_dims);

  // The attention outputs of the history's tokens from `start` on, computed by a step of this mode;
  // one item per layer.
  std::vector<Attended> attend(std::span<const uint8_t> history, int64_t start, StepMode mode);
  // A layer's keys and values as decoded from rows, [tokens][kv_heads][dim].
  void read(std::span<const uint8_t> history, int layer, std::vector<float>* keys,
            std::vector<float>* values);

 private:
  void append(std::span<const uint8_t> history, int layer);
  Attended attend_layer(std::span<const uint8_t> history, int64_t start, StepMode mode, int layer);
  void read_rows(int layer, int64_t tokens, std::vector<float>* keys, std::vector<float>* values);
  // The one that holds the layer's rows.
  PlainCache& cache_of(int layer) {
    return window_heads_ != nullptr && geometry_.window(layer) > 0 ? *window_heads_ : *this;
  }
  void select_and_attend(const StepParams& step, ConstTensorView q, AttendParams params);
  StepParams step_params(const SequenceDesc& sequence, int layer) const;

  const Geometry geometry_;  // all layers with the heads of those without a window
  const StepSettings settings_;
  const std::vector<int16_t> slice_dims_;
  const std::vector<float> slopes_;
  tbb::task_arena arena_;
  std::vector<std::vector<std::byte>> memory_;
  std::vector<std::byte*> row_blocks_;
  std::vector<std::byte*> slice_blocks_;
  std::byte* tail_ = nullptr;
  std::vector<float> keys_, values_, queries_;
  // Layers with a window, if their heads have a shape of their own.
  std::unique_ptr<PlainCache> window_heads_;
};

}  // namespace fasa::testing
