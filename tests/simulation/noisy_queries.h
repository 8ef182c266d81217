// Predicts with the later layers' true queries plus noise.
#pragma once

#include <algorithm>
#include <vector>

#include "offload/device.h"
#include "tests/simulation/plain_cache.h"
#include "tests/support/query_predictor.h"
#include "tests/support/tape.h"

namespace fasa::testing {

class NoisyQueries final : public QueryPredictor {
 public:
  struct Token {
    uint8_t writer = 0;
    int64_t position = 0;
  };

  NoisyQueries(Device& device, const Geometry& geometry, float error)
      : QueryPredictor(device), geometry_(geometry), error_(error), room_(size_t{kMaxDepth}) {
    for (auto& room : room_) room.resize(size_t{kMaxQueries} * kMaxWidth);
  }
  void expect(std::vector<Token> tokens) { tokens_ = std::move(tokens); }  // of the next step

  int max_depth() const override { return kMaxDepth; }
  ConstTensorView estimate(int layer, int ahead, StreamView stream) override {
    float* const out = room_[static_cast<size_t>(ahead - 1)].data();
    const int target = layer + ahead;
    const int width = geometry_.query_heads * geometry_.key_dim;
    device().launch(stream, "estimate", [=, error = error_, tokens = tokens_] {
      float* at = out;
      for (const Token& token : tokens) {
        const float* truth = token_values(token.writer, target, token.position, TokenPart::kQuery);
        for (int i = 0; i < width; ++i) {
          *at++ = truth[i] + error * noise(static_cast<uint64_t>(token.position * 4096 + i));
        }
      }
      return KernelWork{};
    });
    return ConstTensorView::dense(out, DType::kF32, static_cast<int64_t>(tokens_.size()),
                                  geometry_.query_heads, geometry_.key_dim);
  }

  static constexpr int kMaxQueries = 8 * kMaxDecoded;

 private:
  static constexpr int kMaxDepth = 3;
  const Geometry geometry_;
  const float error_;
  std::vector<std::vector<float>> room_;  // host memory, which this device's kernels can access
  std::vector<Token> tokens_;
};

}  // namespace fasa::testing
