// The oracle: attention over a history of tokens that lies in plain arrays, written anew for every
// question. No pages that are shared, no tiers, no streams, no predictions: what a runtime gives
// has to be this, bit for bit, however it came to hold these tokens.
#pragma once

#include <tbb/task_arena.h>

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/params.h"
#include "runtime/base/geometry.h"
#include "runtime/config/config.h"
#include "scheduler/step_settings.h"

namespace fasa::testing {

// A sequence's tokens: who wrote each. A token's key, value and query follow from its writer, its
// position and the layer.
using History = std::vector<uint8_t>;

inline constexpr int kWriters = 4;
inline constexpr int kMaxTokens = 320;  // of a sequence
inline constexpr int kMaxLayers = 4;
inline constexpr int kMaxWidth = 96;  // heads x dimensions

enum class TokenPart : uint8_t { kKey, kValue, kQuery };
// [heads x dim] of a token. One writer gives every position the same: scores that tie.
const float* token_values(int writer, int layer, int64_t position, TokenPart part);

// What a layer gives for tokens: out [tokens][query_heads][value_dim], lse [tokens][query_heads].
struct Attended {
  std::vector<float> out;
  std::vector<float> lse;
};

class PlainCache {
 public:
  // As a Runtime's; the device is always the cpu.
  PlainCache(const Config& config, const Geometry& geometry, RowDType row_dtype,
             const std::vector<int16_t>& slice_dims);

  // What attention gives for the tokens of the history from `start` on, which a step of this mode
  // brought; one item per layer.
  std::vector<Attended> attend(std::span<const uint8_t> history, int64_t start, StepMode mode);
  // The keys and values of a layer as rows hold them, [tokens][kv_heads][dim].
  void read(std::span<const uint8_t> history, int layer, std::vector<float>* keys,
            std::vector<float>* values);

 private:
  void append(std::span<const uint8_t> history, int layer);
  Attended attend_layer(std::span<const uint8_t> history, int64_t start, StepMode mode, int layer);
  void select_and_attend(const StepParams& step, ConstTensorView q, AttendParams params);
  StepParams step_params(const SequenceDesc& sequence, int layer) const;

  const Geometry geometry_;
  const StepSettings settings_;
  const std::vector<int16_t> slice_dims_;
  const std::vector<float> slopes_;
  tbb::task_arena arena_;
  std::vector<std::vector<std::byte>> memory_;
  std::vector<std::byte*> row_blocks_;
  std::vector<std::byte*> slice_blocks_;
  std::byte* tail_ = nullptr;
  std::vector<float> keys_, values_, queries_;
};

}  // namespace fasa::testing
