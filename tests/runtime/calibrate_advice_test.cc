// Calibration's advice beside the order of FCs: bits and FCs for a byte budget, tokens per layer.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "runtime/base/error.h"
#include "runtime/calibrate/calibrate_ranking.h"
#include "runtime/calibrate/calibrate_slices.h"
#include "runtime/calibrate/map_settings.h"

namespace fasa {
namespace {

using ::testing::HasSubstr;

constexpr int kChunks = 32;
constexpr int64_t kTokens = 640;
constexpr SelectionRule kRule{40, 4, 8};

// Keys and queries that are nonzero in the first `alive` FCs only.
HeadSamples head_with(unsigned seed, int alive, float sharpness) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  HeadSamples head;
  head.gqa_group = 2;
  head.key_dim = 2 * kChunks;
  head.tokens = kTokens;
  head.scale = sharpness;
  for (int i = 0; i < kChunks; ++i) head.chunks.push_back({2 * i, 2 * i + 1});
  head.keys.resize(static_cast<size_t>(head.key_dim * kTokens));
  for (int d = 0; d < 2 * alive; ++d) {
    for (int64_t t = 0; t < kTokens; ++t) {
      head.keys[static_cast<size_t>(d * kTokens + t)] = normal(random);
    }
  }
  for (int q = 0; q < 24; ++q) {
    head.positions.push_back(static_cast<int32_t>(kTokens - 1 - 5 * q));
    for (int i = 0; i < head.gqa_group * head.key_dim; ++i) head.queries.push_back(normal(random));
  }
  return head;
}

HeadRanking ranked(const HeadSamples& head) {
  return rank_chunks(head, {.window = 40, .sinks = 4, .recent = 8, .greedy_chunks = 4});
}

MapSlice best_of(const HeadSamples& head, int bytes) {
  SliceSearch search(bytes, kChunks);
  search.add(head, ranked(head), kRule);
  EXPECT_GT(search.oracle(), 0);
  for (const SliceSearch::Option& option : search.options()) {
    EXPECT_LE(slice_bytes_per_token(option.dtype, option.chunks, option.fine_chunks), bytes);
  }
  return search.best();
}

TEST(SliceSearch, BytesPerToken) {
  EXPECT_DOUBLE_EQ(slice_bytes_per_token(SliceDType::kInt2, 32), 18);
  EXPECT_DOUBLE_EQ(slice_bytes_per_token(SliceDType::kInt2, 64, 8), 41);
  EXPECT_DOUBLE_EQ(slice_bytes_per_token(SliceDType::kInt4, 32), 34);
  EXPECT_DOUBLE_EQ(slice_bytes_per_token(SliceDType::kBF16, 8), 32);
}

TEST(SliceSearch, ManyFcsWantFewBitsAndFewWantMany) {
  EXPECT_EQ(best_of(head_with(1, kChunks, 0.5f), 18),
            (MapSlice{.dtype = SliceDType::kInt2, .tip_chunks = 32, .bytes = 18}));
  const MapSlice few = best_of(head_with(2, 4, 1.0f), 18);
  EXPECT_GE(slice_bits(few.dtype), 4);
  EXPECT_GE(few.tip_chunks, 4);
}

TEST(SliceSearch, TakesTheMostFcsThatFit) {
  const SliceSearch search(18, kChunks);
  for (const SliceSearch::Option& option : search.options()) {
    const bool all = option.chunks == kChunks;
    const int fine = option.fine_chunks == 0 ? 0 : option.fine_chunks + 1;
    EXPECT_TRUE(all || slice_bytes_per_token(option.dtype, option.chunks + 1, fine) > 18);
  }
  EXPECT_EQ(search.options().size(), 8u);
}

// Only the first four FCs have values.
TEST(SliceSearch, FineChunksAreTheFirst) {
  const HeadSamples head = head_with(3, 4, 1.0f);
  const std::vector<int16_t> dims = ranked(head).dims();
  const auto error_of = [&](int fine_chunks) {
    const HeadSamples coded = coded_samples(head, SliceDType::kInt2, dims, fine_chunks);
    double sum = 0;
    for (size_t i = 0; i < coded.keys.size(); ++i) {
      sum += std::pow(double{coded.keys[i]} - double{head.keys[i]}, 2);
    }
    return sum;
  };
  EXPECT_LT(error_of(4), 0.1 * error_of(0));
}

TEST(SliceSearch, TooFewBytesAreRefused) {
  try {
    SliceSearch search(1, kChunks);
    FAIL() << "nothing was thrown";
  } catch (const UsageError& error) {
    EXPECT_THAT(error.what(), HasSubstr("slice_bytes = 1"));
  }
}

TEST(MapSettings, WhatTheConfigLeavesToTheMap) {
  FcMap map;
  map.slice = MapSlice{.dtype = SliceDType::kInt4, .tip_chunks = 7, .bytes = 9};
  Config config;
  EXPECT_FALSE(asks_map(config));
  config.selection.slice = SlicePreset::kMap;
  EXPECT_TRUE(asks_map(config));
  take_from_map(map, "m.json", config);
  EXPECT_EQ(config.effective_slice_dtype(), SliceDType::kInt4);
  EXPECT_EQ(config.effective_tip_chunks(32), 7);

  Config explicit_dtype;
  explicit_dtype.selection.slice = SlicePreset::kMap;
  explicit_dtype.selection.slice_dtype = SliceDType::kBF16;
  take_from_map(map, "m.json", explicit_dtype);
  EXPECT_EQ(explicit_dtype.effective_slice_dtype(), SliceDType::kBF16);
  EXPECT_TRUE(explicit_dtype.selection.fac_tokens.empty());

  map.slice = MapSlice{.dtype = SliceDType::kInt2, .tip_chunks = 30, .fine_chunks = 4, .bytes = 40};
  Config fine;
  fine.selection.slice = SlicePreset::kMap;
  take_from_map(map, "m.json", fine);
  EXPECT_EQ(fine.effective_tip_chunks(32), 30);
  EXPECT_EQ(fine.effective_fine_chunks(), 4);
  EXPECT_TRUE(fine.has_low_bit_set(32));
  EXPECT_FALSE(fine.has_low_bit_set(40));

  Config asking;
  asking.selection.slice = SlicePreset::kMap;
  try {
    take_from_map(FcMap{}, "m.json", asking);
    FAIL() << "nothing was thrown";
  } catch (const InputError& error) {
    EXPECT_THAT(error.what(), HasSubstr("m.json"));
    EXPECT_THAT(error.what(), HasSubstr("--slice-bytes"));
  }
  EXPECT_THROW(asking.validate_for({.layers = 1,
                                    .kv_heads = 1,
                                    .query_heads = 1,
                                    .key_dim = 8,
                                    .value_dim = 8,
                                    .rotary_dims = 8,
                                    .rotary_layout = RotaryLayout::kHalf,
                                    .scale = 1,
                                    .windows = {}}),
               UsageError);
}

}  // namespace
}  // namespace fasa
