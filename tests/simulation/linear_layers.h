// Layers with linear attention on the simulation's tokens: what a model's kernels do in a step, and
// the oracle, which computes a whole history anew, each run of tokens that were prefilled or
// decoded in one piece.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/linear_params.h"
#include "tests/simulation/plain_cache.h"

namespace fasa::testing {

class LinearLayers {
 public:
  struct Token {
    uint8_t writer = 0;
    int64_t position = 0;
  };

  explicit LinearLayers(const LinearShape& shape);

  int layers() const { return layout_.shape().layers; }
  size_t token_bytes() const;  // of a layer's output
  // A layer of a step with these tokens, in order of its rows. out: [tokens, value_width].
  void run(int layer, std::span<const LinearPart> parts, std::span<const Token> tokens,
           std::byte* out) const;
  // The outputs of the history's tokens from `start` on, one item per layer. `decoded`: 1 for each
  // token that was decoded.
  std::vector<std::vector<std::byte>> attend(std::span<const uint8_t> history,
                                             std::span<const uint8_t> decoded, int64_t start) const;

 private:
  const LinearLayout layout_;
  std::vector<float> taps_, factor_, bias_, norm_;
};

}  // namespace fasa::testing
