// The shape of a model's layers with linear attention, and of the state that they keep.
#pragma once

#include <cstddef>
#include <cstdint>

#include "runtime/base/dtype.h"

namespace fasa {

// Layers with gated delta nets (arXiv 2412.06464) in place of attention. Each keeps a state per
// sequence whose size does not depend on the sequence's length.
struct LinearShape {
  int layers = 0;  // 0 = none
  int key_heads = 0;
  int value_heads = 0;  // a multiple of key_heads
  int key_dim = 0;
  int value_dim = 0;
  int taps = 0;                // of the causal convolution
  DType dtype = DType::kBF16;  // of the inputs that a state keeps: the model's activations
  // Value heads take the key heads by turns (head h: h mod key_heads), as in GGUF files; otherwise
  // neighbours share one (h / (value_heads / key_heads)).
  bool heads_by_turns = false;

  constexpr int key_width() const { return key_heads * key_dim; }
  constexpr int value_width() const { return value_heads * value_dim; }
  constexpr int sharing() const { return value_heads / key_heads; }  // value heads of a key head
  constexpr int value_head(int key_head, int which) const {
    return heads_by_turns ? which * key_heads + key_head : key_head * sharing() + which;
  }
  constexpr int key_head(int value_head) const {
    return heads_by_turns ? value_head % key_heads : value_head / sharing();
  }
  // Width of the convolution: queries, keys, values.
  constexpr int channels() const { return 2 * key_width() + value_width(); }
  bool operator==(const LinearShape&) const = default;
};

// Prefilled tokens advance the state in blocks, which end at multiples of this position.
inline constexpr int kLinearBlock = 64;
inline constexpr int kMaxLinearTaps = 8;

// Most tokens at the end of a decode step that may be dropped. The state is as of the token before
// them until it is known which stay: these wait as inputs, and the next step advances the state by
// them first.
inline constexpr int kMaxWaiting = 15;

// When a sequence keeps a copy of its state (a snapshot): at multiples of `interval` tokens, and at
// the ends of its last turns, which are where prefilled tokens follow decoded ones or the reverse.
struct SnapshotRule {
  int interval = 16384;  // a multiple of kLinearBlock
  int turns = 2;

  // Erases the copies, in order of tokens, that it does not keep.
  template <typename Copies, typename TokensOf>
  void apply(Copies& copies, const TokensOf& tokens_of) const {
    int ends = 0;
    for (size_t i = copies.size(); i-- > 0;) {
      if (tokens_of(copies[i]) % interval == 0 || ++ends <= turns) continue;
      copies.erase(copies.begin() + static_cast<ptrdiff_t>(i));
    }
  }
  bool operator==(const SnapshotRule&) const = default;
};

// Names a state: how many tokens it covers, and its size.
struct StatePoint {
  int64_t tokens = 0;
  int open = 0;          // tokens of the open block; waiting ones if the last was decoded
  bool decoded = false;  // how the last token was computed
  uint64_t bytes = 0;

  bool operator==(const StatePoint&) const = default;
};

// Where one layer's part of a sequence's state lies, in bytes from its beginning. First what the
// state needs where no block is open: the heads' matrices and the last inputs of the convolution.
// Then the inputs of an open block, which may hold all but the block's last token, or of waiting
// tokens: no state has both.
class LinearLayout {
 public:
  explicit LinearLayout(const LinearShape& shape) : shape_(shape) {
    const auto element = int64_t{dtype_bytes(shape.dtype)};
    const auto end_of = [](int64_t begin, int64_t bytes) { return begin + (bytes + 63) / 64 * 64; };
    constexpr int64_t kFloat = sizeof(float);
    constexpr int64_t kOpen = kLinearBlock - 1;
    inputs_ = end_of(0, shape.value_heads * head_elements() * kFloat);
    keys_ = end_of(inputs_, int64_t{shape.taps - 1} * shape.channels() * element);
    values_ = end_of(keys_, kOpen * shape.key_width() * element);
    gates_ = end_of(values_, kOpen * shape.value_width() * element);
    bytes_ = end_of(gates_, kOpen * 2 * shape.value_heads * kFloat);
  }

  constexpr const LinearShape& shape() const { return shape_; }
  // A head's matrix is [key_dim, value_stride]: rows are padded with zeros to whole vectors.
  constexpr int64_t value_stride() const { return (int64_t{shape_.value_dim} + 15) / 16 * 16; }
  constexpr int64_t head_elements() const { return shape_.key_dim * value_stride(); }
  // Inputs of the convolution [taps - 1, channels], oldest first; those of an open block
  // [kLinearBlock - 1, ...]: convolved keys [key_width] and values [value_width], and gates
  // [2 x value_heads] in f32.
  constexpr int64_t inputs() const { return inputs_; }
  constexpr int64_t keys() const { return keys_; }
  constexpr int64_t values() const { return values_; }
  constexpr int64_t gates() const { return gates_; }
  // Waiting tokens have what the open block's first ones have. The inputs of their convolution lie
  // in its later rows: this is where a channel's is.
  constexpr int64_t waiting_input(int64_t token, int64_t channel) const {
    static_assert(3 * kMaxWaiting < kLinearBlock);
    const int64_t width = 2 * int64_t{shape_.key_width()};
    const int64_t element =
        channel < width ? kMaxWaiting * int64_t{shape_.key_width()} + token * width + channel
                        : (kMaxWaiting + token) * shape_.value_width() + channel - width;
    return (channel < width ? keys_ : values_) + element * dtype_bytes(shape_.dtype);
  }
  constexpr int64_t layer_bytes() const { return bytes_; }
  constexpr int64_t cut_bytes() const { return keys_; }  // without an open block
  constexpr int64_t bytes() const { return shape_.layers * bytes_; }
  // A copy of a state, [layers], has the open block's inputs only if there are such.
  constexpr int64_t copied_layer_bytes(int open) const {
    return open > 0 ? layer_bytes() : cut_bytes();
  }
  constexpr int64_t copied_bytes(int open) const {
    return shape_.layers * copied_layer_bytes(open);
  }

 private:
  LinearShape shape_;
  int64_t inputs_ = 0, keys_ = 0, values_ = 0, gates_ = 0, bytes_ = 0;
};

}  // namespace fasa
