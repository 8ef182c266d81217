// Attention sinks that are logits take their share of a sum; for every device's kernel.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <random>
#include <vector>

#include "kernels/model_params.h"
#include "runtime/base/dtype.h"

namespace fasa::sinks_case {

inline void expect_their_share(const std::function<void(const TakeSinksParams&)>& take) {
  constexpr int64_t kTokens = 3, kDim = 90;
  constexpr int kHeads = 5;
  const std::vector<float> sinks = {0, -40, 40, 1.5f, -std::numeric_limits<float>::infinity()};
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  std::vector<float> lse(kTokens * kHeads);
  for (float& value : lse) value = normal(random);
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    std::vector<std::byte> x(static_cast<size_t>(kTokens * kHeads * kDim * dtype_bytes(dtype)));
    std::vector<double> expected;
    for (int64_t i = 0; i < kTokens * kHeads * kDim; ++i) {
      store_element(dtype, x.data(), i, normal(random));
      const double of_sink = sinks[static_cast<size_t>(i / kDim % kHeads)];
      const double of_tokens = lse[static_cast<size_t>(i / kDim)];
      expected.push_back(load_element(dtype, x.data(), i) / (1 + std::exp(of_sink - of_tokens)));
    }
    take({.tokens = kTokens,
          .heads = kHeads,
          .dim = kDim,
          .sinks = sinks.data(),
          .lse = lse.data(),
          .dtype = dtype,
          .x = x.data()});
    const double bound = dtype == DType::kF32 ? 2e-6 : 1.0 / 128;
    for (size_t i = 0; i < expected.size(); ++i) {
      ASSERT_NEAR(load_element(dtype, x.data(), static_cast<int64_t>(i)), expected[i],
                  bound * std::max(1.0, std::abs(expected[i])))
          << i;
    }
  }
}

}  // namespace fasa::sinks_case
