// The settings that are reduced, in order, until a model fits, and a check that it then fits.
#include "runtime/plan/fit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/base/error.h"
#include "runtime/catalog/geometry_catalog.h"
#include "runtime/plan/planner.h"

namespace fasa {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::StartsWith;

constexpr uint64_t kModel = uint64_t{4200} << 20;
constexpr int64_t kTokens = 131072;

FitOptions request(uint64_t device_memory) {
  FitOptions request;
  request.geometry = find_model_shape("Llama-3.1-8B").geometry;
  request.model_bytes = kModel;
  request.device_memory = device_memory;
  request.tokens = kTokens;
  request.min_tokens = 1000;
  return request;
}

FitOptions without_low_bit_tokens(FitOptions request) {
  request.config.selection.low_bit_tokens = TokenCount{};
  return request;
}

uint64_t bytes_as_it_is(const FitOptions& as) {
  FitOptions unlimited = as;
  unlimited.device_memory = UINT64_MAX;
  const Fitted fitted = fit(unlimited);
  EXPECT_THAT(fitted.given_up, IsEmpty());
  return fitted.device_bytes;
}

TEST(Fit, NothingIsGivenUpWhereAllFits) {
  const uint64_t needed = bytes_as_it_is(request(0));
  EXPECT_GT(needed, kModel);
  const Fitted fitted = fit(request(needed));
  EXPECT_THAT(fitted.given_up, IsEmpty());
  EXPECT_EQ(fitted.tokens, kTokens);
  EXPECT_EQ(fitted.device_bytes, needed);
  EXPECT_FALSE(fitted.config.placement.hot_rows.has_value());
}

TEST(Fit, HotRowsGoFirstAndOnlyAsFarAsItTakes) {
  const uint64_t needed = bytes_as_it_is(request(0));
  const uint64_t there = needed - (uint64_t{8} << 20);
  const Fitted fitted = fit(request(there));
  EXPECT_THAT(fitted.given_up, ElementsAre(StartsWith("hot rows: ")));
  EXPECT_LE(fitted.device_bytes, there);
  const int hot_rows = fitted.config.placement.hot_rows.value();
  EXPECT_GT(hot_rows, 0);
  FitOptions one_more = request(UINT64_MAX);
  one_more.config.placement.hot_rows = hot_rows + 1;
  EXPECT_GT(fit(one_more).device_bytes, there);
}

TEST(Fit, ThenFineCodesBecomeDefaultOnes) {
  FitOptions fine = request(bytes_as_it_is(request(0)));
  fine.config.selection.slice = SlicePreset::kFine;
  ASSERT_GT(bytes_as_it_is(fine), fine.device_memory);
  const Fitted fitted = fit(fine);
  EXPECT_THAT(fitted.given_up, ElementsAre(StartsWith("slices: default")));
  EXPECT_EQ(fitted.config.selection.slice, SlicePreset::kDefault);
}

TEST(Fit, ThenLowBitTokensWhoseRoomHotRowsGetBack) {
  const uint64_t without = bytes_as_it_is(without_low_bit_tokens(request(0)));
  ASSERT_GT(bytes_as_it_is(request(0)), without + (uint64_t{200} << 20));
  const Fitted fitted = fit(request(without));
  EXPECT_THAT(fitted.given_up, ElementsAre("low-bit tokens: none"));
  EXPECT_EQ(fitted.config.selection.low_bit_tokens, TokenCount{});
}

TEST(Fit, ThenSlicesThenTokens) {
  const uint64_t slices = uint64_t{36} * kTokens * 8 * 32;  // bytes of the default slices
  const uint64_t needed = bytes_as_it_is(without_low_bit_tokens(request(0)));
  const Fitted lean = fit(request(needed - slices / 3));
  EXPECT_THAT(lean.given_up,
              ElementsAre("low-bit tokens: none", StartsWith("slices: lean, 32 of 64")));
  EXPECT_EQ(lean.tokens, kTokens);
  const Fitted shorter = fit(request(needed - slices * 3 / 4));
  EXPECT_THAT(shorter.given_up, ElementsAre("low-bit tokens: none", StartsWith("slices: lean"),
                                            StartsWith("hot rows: 0"), StartsWith("tokens: ")));
  EXPECT_LT(shorter.tokens, kTokens);
  EXPECT_LE(shorter.device_bytes, needed - slices * 3 / 4);
}

FitOptions with_host_memory(uint64_t gib, uint64_t device_memory = UINT64_MAX) {
  FitOptions host = request(device_memory);
  host.host_memory = gib << 30;
  return host;
}

// What frees no host memory.
void expect_device_settings_kept(const Fitted& fitted) {
  EXPECT_FALSE(fitted.config.placement.hot_rows.has_value());
  EXPECT_FALSE(fitted.config.selection.low_bit_tokens.has_value());
  EXPECT_EQ(fitted.config.selection.slice, SlicePreset::kDefault);
}

TEST(Fit, HostMemoryTakesInt8RowsThenTokens) {
  const Fitted rows = fit(with_host_memory(9));
  EXPECT_THAT(rows.given_up, ElementsAre("rows: int8 instead of bf16"));
  EXPECT_EQ(rows.config.placement.row_dtype, RowDType(RowDType::kInt8));
  EXPECT_EQ(rows.tokens, kTokens);
  expect_device_settings_kept(rows);
  const Fitted shorter = fit(with_host_memory(4));
  EXPECT_THAT(shorter.given_up,
              ElementsAre("rows: int8 instead of bf16", "tokens: 65536 instead of 131072"));
  EXPECT_EQ(shorter.tokens, int64_t{4} << 30 >> 16);  // 64 KiB of rows a token
  expect_device_settings_kept(shorter);
}

TEST(Fit, FewerTokensForTheHostAreFewerOnTheDevice) {
  FitOptions half = request(0);
  half.tokens = kTokens / 2;
  half.config.placement.row_dtype = RowDType::kInt8;
  const Fitted fitted = fit(with_host_memory(4, bytes_as_it_is(half)));
  EXPECT_EQ(fitted.tokens, kTokens / 2);
  EXPECT_EQ(fitted.given_up.size(), 2u);
  expect_device_settings_kept(fitted);
  // Too little device memory for as many: reductions there follow, and one number of tokens.
  const Fitted both = fit(with_host_memory(4, kModel + (uint64_t{240} << 20)));
  EXPECT_THAT(both.given_up, ElementsAre(StartsWith("rows: int8"), StartsWith("low-bit tokens"),
                                         StartsWith("slices: lean"), StartsWith("hot rows: 0"),
                                         StartsWith("tokens: ")));
  EXPECT_LT(both.tokens, kTokens / 2);
}

TEST(Fit, HeadsTooSmallForInt8RowsLoseTokens) {
  FitOptions host = with_host_memory(1);
  host.geometry.key_dim = host.geometry.value_dim = host.geometry.rotary_dims = 16;
  const Fitted fitted = fit(host);
  EXPECT_THAT(fitted.given_up, ElementsAre(StartsWith("tokens: 65536 ")));
}

TEST(Fit, RowsOnTheDeviceBecomeInt8BeforeAnythingElse) {
  FitOptions device = request(0);
  device.config.placement.rows = RowPlacement::kDevice;
  device.device_memory = bytes_as_it_is(device) - (uint64_t{7} << 30);
  EXPECT_THAT(fit(device).given_up, ElementsAre("rows: int8 instead of bf16"));
}

TEST(Fit, HostMemoryTooSmallForTheFewestTokensIsRefused) {
  FitOptions host = request(UINT64_MAX);
  host.host_memory = uint64_t{1} << 20;
  try {
    fit(host);
    FAIL();
  } catch (const BudgetError& error) {
    EXPECT_EQ(error.limit(), "host_memory");
    EXPECT_THAT(error.what(), ::testing::HasSubstr("rows: int8 instead of bf16"));
  }
}

TEST(Fit, WhatCannotFitIsRefusedWithItsNumbers) {
  try {
    fit(request(kModel));
    FAIL();
  } catch (const BudgetError& error) {
    EXPECT_EQ(error.limit(), "device_memory");
    EXPECT_GT(error.asked_bytes(), kModel);
    EXPECT_THAT(error.what(), ::testing::HasSubstr("4.1"));
    EXPECT_THAT(error.what(), ::testing::HasSubstr("1000 tokens"));
    EXPECT_THAT(error.what(), ::testing::HasSubstr("slices: lean"));
  }
}

}  // namespace
}  // namespace fasa
