// Parameters of the kernels of a model's own work, everything between two attentions: plain structs
// with pointers into the device's memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "runtime/base/dtype.h"
#include "runtime/base/geometry.h"

namespace fasa {

// kBareRms: kRms without weights.
enum class NormKind : uint8_t { kRms, kLayer, kBareRms };
enum class Activation : uint8_t { kSilu, kGelu, kGeluTanh };
// The gate of gpt-oss' experts: see activate_clamped.
struct ClampedGate {
  float alpha = 1.702f;
  float limit = 7;
};

// Workspace of cuBLASLt, bytes.
inline constexpr uint64_t kCublasScratchBytes = uint64_t{32} << 20;

// x [rows, inputs] · w [columns, inputs]ᵀ -> y [rows, columns], rows of y `y_stride` elements
// apart. Sums are f32. `batch` products run in one call; the steps give the elements from one
// product's tensors to the next one's.
struct ProjectParams {
  static constexpr const char* kName = "project";
  DType dtype = DType::kBF16;  // of x and w: f32 or bf16
  int64_t rows = 0;
  int64_t inputs = 0;
  int64_t columns = 0;
  int64_t y_stride = 0;
  int64_t x_stride = 0;  // elements from a row of x to the next; 0 = inputs
  int64_t batch = 1;
  int64_t x_step = 0;
  int64_t weights_step = 0;
  int64_t y_step = 0;
  const void* x = nullptr;
  const void* weights = nullptr;
  float* y = nullptr;
  // In decode steps: on devices whose kernels for many rows sum in another order, a row has the
  // bits that it has alone.
  bool apart = false;
  // DeviceTraits::project_scratch bytes.
  std::byte* scratch = nullptr;

  constexpr int64_t row_stride() const { return x_stride == 0 ? inputs : x_stride; }
  // One product of contiguous rows.
  constexpr bool is_plain() const { return batch == 1 && row_stride() == inputs; }
};

// A norm's parameters, [size] each, f32; `bias` may be null. Null weight: no norm, except kBareRms.
struct NormParams {
  NormKind kind = NormKind::kRms;
  float eps = 0;
  const float* weight = nullptr;
  const float* bias = nullptr;

  constexpr bool none() const { return weight == nullptr && kind != NormKind::kBareRms; }
};

enum class AddOrder : uint8_t {
  kAddThenNorm,
  kNormThenAdd,  // attention and MLP in parallel: both read the layer's input
};

// Adds a projection's result to the residual, and normalises the residual for the next projection:
// residual += scale x addend_norm(addend + bias), out = norm(residual), in either order.
struct AddNormParams {
  static constexpr const char* kName = "add_norm";
  int64_t rows = 0;
  int64_t size = 0;
  float* residual = nullptr;      // [tokens, size]
  const float* addend = nullptr;  // [tokens, size], or null
  const float* bias = nullptr;    // [size], or null
  NormParams addend_norm = {};
  float scale = 1;
  const float* factor = nullptr;    // [1]: multiplies the residual after the addition; or null
  const int32_t* tokens = nullptr;  // row i is this token; null: token i
  AddOrder order = AddOrder::kAddThenNorm;
  NormParams norm;
  DType dtype = DType::kBF16;  // of `out`: f32 or bf16
  void* out = nullptr;         // [rows, size]; may be the residual (f32, tokens null)
};

// A scale of queries that grows with the position p: 1 + beta · ln(1 + ⌊p / positions⌋), as in
// Llama 4. beta = 0: none.
struct QueryGrowth {
  float beta = 0;
  int32_t positions = 0;
};

// cosines and sines [tokens, half] of position x frequency, times `factor`.
struct AnglesParams {
  static constexpr const char* kName = "angles";
  int64_t tokens = 0;
  int64_t half = 0;                    // rotary_dims / 2
  const int32_t* positions = nullptr;  // [tokens]
  const float* frequencies = nullptr;  // [half]
  float factor = 1;
  float* cosines = nullptr;
  float* sines = nullptr;
};

// A projection to heads -> bias, a norm per head, rotation of each head's first dimensions, the
// model's dtype. Query heads come first, then key heads, then values, which are not rotated.
struct HeadsParams {
  static constexpr const char* kName = "heads";
  int64_t tokens = 0;
  int heads = 0;
  int query_heads = 0;
  int key_heads = 0;
  int dim = 0;
  int rotary_dims = 0;
  RotaryLayout rotary_layout = RotaryLayout::kHalf;
  const float* x = nullptr;       // [tokens, heads, dim], tokens `x_stride` elements apart
  bool values_from_keys = false;  // x and bias have no values: those of the keys are taken
  int64_t x_stride = 0;
  int64_t x_head_stride = 0;    // 0: dim
  const float* bias = nullptr;  // [heads, dim], or null
  NormParams query_norm = {};   // null weight: no norm
  NormParams key_norm = {};
  NormParams value_norm = {};
  int64_t norm_stride = 0;     // elements between the norm weights of heads; 0: one norm for all
  bool norm_together = false;  // one norm of all query heads, one of all key heads
  const float* cosines = nullptr;  // [tokens, rotary_dims / 2]
  const float* sines = nullptr;
  QueryGrowth growth = {};             // applied after the rotation
  const int32_t* positions = nullptr;  // [tokens], for `growth`
  DType dtype = DType::kBF16;
  void* out = nullptr;          // [tokens, heads, dim]
  int64_t out_stride = 0;       // of tokens; 0: heads x dim
  int64_t out_head_stride = 0;  // 0: dim

  // The head of x that a head is made from.
  constexpr int source(int head) const {
    const bool value = values_from_keys && head >= query_heads + key_heads;
    return value ? head - key_heads : head;
  }
};

// out = f(x + bias), or with a gate f(gate) * up of x = [gate, up].
struct ActivateParams {
  static constexpr const char* kName = "activate";
  int64_t tokens = 0;
  int64_t size = 0;  // of `out`
  Activation function = Activation::kSilu;
  bool gated = true;
  // If set, replaces `function`: g·sigmoid(alpha·g) · (u + 1), where g = min(gate, limit) and u =
  // up limited to ±limit.
  std::optional<ClampedGate> clamped = {};
  bool interleaved = false;  // gates and ups alternate: [size, 2]
  // Ups of an x that is not gated, tokens `up_stride` elements apart; null: f(x) alone.
  const float* up = nullptr;
  int64_t up_stride = 0;
  const float* x = nullptr;     // [tokens, size], gated [tokens, 2 x size]
  const float* bias = nullptr;  // as a row of x, or null
  // The bias that each row takes, biases `bias_step` elements apart; null: one bias for all rows.
  const int32_t* bias_rows = nullptr;
  int64_t bias_step = 0;
  const float* shares = nullptr;  // [tokens]: each row of `out` times their sigmoid; or null
  DType dtype = DType::kBF16;
  void* out = nullptr;  // [tokens, size]
};

// Attention sinks: a logit that takes its share of each head's softmax and has no value: x = x ·
// exp(lse) / (exp(lse) + exp(sink)).
struct TakeSinksParams {
  static constexpr const char* kName = "take_sinks";
  int64_t tokens = 0;
  int heads = 0;
  int64_t dim = 0;
  const float* sinks = nullptr;  // [heads]
  const float* lse = nullptr;    // [tokens, heads], natural logs of the softmaxes' sums
  DType dtype = DType::kBF16;
  void* x = nullptr;  // [tokens, heads, dim]
};

// x += bias, in each row.
struct AddBiasParams {
  static constexpr const char* kName = "add_bias";
  int64_t rows = 0;
  int64_t size = 0;
  const float* bias = nullptr;
  float* x = nullptr;
};

}  // namespace fasa
