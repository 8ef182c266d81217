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

TEST(Fit, HostRowsLimitTheTokens) {
  FitOptions host = request(UINT64_MAX);
  host.host_memory = uint64_t{4} << 30;
  const Fitted fitted = fit(host);
  EXPECT_EQ(fitted.tokens, int64_t{4} << 30 >> 17);  // 128 KiB of rows a token
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
