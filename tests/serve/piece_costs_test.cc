// The tokens of pieces follow from measured pieces, wherever they are in the context.
#include "runtime/serve/piece_costs.h"

#include <gtest/gtest.h>

namespace fasa::serve {
namespace {

// A layer whose attention to 1,000 keys costs a token as much as the rest.
struct Layer {
  double fixed = 0;
  double per_token = 1e-4;
  double real_even_keys = 1000;
  double layout_tokens = 0;

  double seconds(const PieceCosts::Piece& piece, int tokens) const {
    const double keys = static_cast<double>(piece.keys) / real_even_keys;
    return fixed + piece.loading + per_token * (tokens * (1 + keys) + layout_tokens * keys);
  }
  // Goes through a chunk at these positions as an engine does; returns the longest piece.
  double work(PieceCosts* costs, int64_t from, int64_t to, double slot, double useful) const {
    double longest = 0;
    for (int64_t at = from; at < to;) {
      const PieceCosts::Piece piece{.keys = at};
      const int tokens = costs->tokens(piece, slot, useful);
      const double took = seconds(piece, tokens);
      costs->worked(piece, tokens, took);
      longest = std::max(longest, took);
      at += tokens;
    }
    return longest;
  }
};

TEST(PieceCosts, TheFirstPieceIsSmall) {
  EXPECT_EQ(PieceCosts(4, 512, 1000).tokens({}, 100, 0.9), 64);
  EXPECT_EQ(PieceCosts(4, 32, 1000).tokens({}, 100, 0.9), 32);
}

TEST(PieceCosts, PiecesFillTheirTimeAtEveryPosition) {
  const Layer layer;
  PieceCosts costs(4, 512, 1000);
  layer.work(&costs, 0, 4000, 0.02, 0);
  for (const int64_t keys : {0, 1000, 20'000, 0}) {
    const PieceCosts::Piece piece{.keys = keys};
    const int tokens = costs.tokens(piece, 0.02, 0);
    EXPECT_NEAR(layer.seconds(piece, tokens), 0.02, 0.003) << keys;
  }
  EXPECT_EQ(costs.tokens({.keys = 10'000'000}, 0.02, 0), 4);
  EXPECT_EQ(costs.tokens({}, 10, 0), 512);
}

// Attention costs twice what was expected, or half: from layer to layer no piece is much longer.
TEST(PieceCosts, ExpectationsMayBeWrong) {
  for (const double real : {500.0, 2000.0}) {
    const Layer layer{.real_even_keys = real};
    PieceCosts costs(4, 512, 1000);
    for (int i = 0; i < 4; ++i) {
      EXPECT_LT(layer.work(&costs, 0, 30'000, 0.02, 0), 0.045) << real << ", layer " << i;
    }
  }
}

TEST(PieceCosts, WhatEveryPieceCostsTakesASmallShare) {
  const Layer layer{.fixed = 0.01};
  PieceCosts costs(4, 512, 1000);
  layer.work(&costs, 0, 2000, 0.1, 0);
  layer.work(&costs, 0, 2000, 0.011, 0);
  const PieceCosts::Piece far{.keys = 9000};
  const int tokens = costs.tokens(far, 0.011, 0.75);
  EXPECT_NEAR(layer.seconds(far, tokens), 0.04, 0.008);
  EXPECT_LT(costs.tokens(far, 0.011, 0), 8);  // a limit that was given
}

TEST(PieceCosts, LayingKeysOutTakesASmallShareFarInAContext) {
  const Layer layer{.layout_tokens = 5};
  PieceCosts costs(4, 512, 1000, 5);
  layer.work(&costs, 0, 2000, 0.02, 0.75);
  const PieceCosts::Piece far{.keys = 100'000};
  EXPECT_NEAR(costs.tokens(far, 0.02, 0.75), 15, 2);
}

// Rows are read once a layer whatever its first piece has.
TEST(PieceCosts, ReadingEarlierRowsMakesNoLaterPieceSmaller) {
  const Layer layer;
  PieceCosts costs(4, 512, 1000);
  layer.work(&costs, 0, 1000, 0.02, 0);
  const int before = costs.tokens({.keys = 1000}, 0.02, 0.75);
  const PieceCosts::Piece first{.keys = 1000, .loading = 0.5};
  EXPECT_EQ(costs.tokens(first, 0.02, 0.75), 4);
  costs.worked({.keys = 1000, .loading = 0.04}, 100, 0.04 + layer.seconds({.keys = 1000}, 100));
  EXPECT_NEAR(costs.tokens({.keys = 1000}, 0.02, 0.75), before, before / 10.0);
}

}  // namespace
}  // namespace fasa::serve
