// How many tokens a piece of a prompt may have, by what measured pieces cost.
#pragma once

#include <cstdint>

#include "runtime/serve/fixed_cost.h"

namespace fasa::serve {

// A piece is a step of one layer (PromptChunks::begin_piece). Its time is that of its tokens, each
// of which attends to the tokens before it, a fixed part, and, for a layer's first piece, the time
// to read the layer's earlier rows over the link. Only the tokens make a smaller piece cheaper, so
// the other parts never make pieces smaller than useful.
class PieceCosts {
 public:
  static constexpr int kFirst = 64;  // tokens, before anything was measured

  struct Piece {
    int64_t keys = 0;    // tokens before it
    double loading = 0;  // seconds to read earlier rows
  };

  // Tokens of a piece: from `least` to `largest`. `even_keys`: that many keys cost a token as much
  // as the rest of the layer. `layout_tokens`: laying the keys out costs as much as the attention
  // of that many tokens.
  PieceCosts(int least, int largest, double even_keys, double layout_tokens = 0)
      : min_tokens_(least),
        max_tokens_(largest),
        even_keys_(even_keys),
        layout_tokens_(layout_tokens) {}

  void worked(const Piece& piece, int64_t tokens, double seconds);
  // Tokens that take about `seconds` in all, or more, so that they take at least `useful` of what
  // they and the fixed part take.
  int tokens(const Piece& piece, double seconds, double useful) const;

 private:
  // A token's, in units of one without keys.
  double token_work(const Piece& piece) const { return 1 + attention(piece); }
  double layout_work(const Piece& piece) const { return layout_tokens_ * attention(piece); }
  double attention(const Piece& piece) const {
    return static_cast<double>(piece.keys) / even_keys_;
  }

  int min_tokens_;
  int max_tokens_;
  double even_keys_;
  double layout_tokens_;
  double per_work_ = 0;  // seconds beyond the fixed part; running mean
  FixedCost fixed_;
};

}  // namespace fasa::serve
