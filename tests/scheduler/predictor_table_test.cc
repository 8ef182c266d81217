// Predictors by name, and their declared properties.
#include "scheduler/prefetch/predictor_table.h"

#include <gtest/gtest.h>

#include "offload/open_device.h"
#include "runtime/base/error.h"

namespace fasa {
namespace {

constexpr PredictorKind kKinds[] = {PredictorKind::kAuto, PredictorKind::kNone,
                                    PredictorKind::kRunnersUp, PredictorKind::kNextQuery};
constexpr int kLayers = 6;
constexpr int kSeen = 3;

class NoQueries final : public QuerySource {
 public:
  int max_depth() const override { return kSeen; }
  ConstTensorView estimate(int, int, StreamView) override { throw UsageError("not asked for"); }
};

TEST(PredictorTable, NamesAreFoundAndListed) {
  EXPECT_EQ(predictor_names(), "auto, none, runners-up, next-query");
  for (const PredictorKind kind : kKinds) {
    EXPECT_EQ(find_predictor(predictor_name(kind)), kind);
    EXPECT_NE(predictor_help().find(predictor_name(kind)), std::string::npos);
  }
  EXPECT_FALSE(find_predictor("tea-leaves"));
  EXPECT_FALSE(find_predictor(""));
}

// Scratch is reserved from the table's declarations, before the predictor exists.
TEST(PredictorTable, WhatItForeseesIsWhatPredictorsSay) {
  const auto device = open_device({});
  NoQueries queries;
  for (const PredictorKind kind : kKinds) {
    for (QuerySource* const source :
         {static_cast<QuerySource*>(nullptr), static_cast<QuerySource*>(&queries)}) {
      const auto predictor = make_predictor(kind, {*device, source, kLayers});
      const PredictionScratch scratch =
          predictor_scratch(kind, kLayers, source == nullptr ? 0 : kSeen);
      EXPECT_EQ(scratch.max_depth, predictor->max_depth()) << predictor_name(kind);
      EXPECT_EQ(scratch.writes_sets, predictor->writes_sets()) << predictor_name(kind);
    }
  }
}

TEST(PredictorTable, AutoIsRunnersUp) {
  for (const int seen : {0, kSeen}) {
    EXPECT_EQ(predictor_scratch(PredictorKind::kAuto, kLayers, seen).max_depth, kLayers - 1);
    EXPECT_FALSE(predictor_scratch(PredictorKind::kAuto, kLayers, seen).writes_sets);
  }
  EXPECT_EQ(predictor_scratch(PredictorKind::kNextQuery, kLayers, 0).max_depth, 0);
  EXPECT_FALSE(needs_queries(PredictorKind::kAuto));
  EXPECT_TRUE(needs_queries(PredictorKind::kNextQuery));
  EXPECT_FALSE(needs_queries(PredictorKind::kRunnersUp));
}

}  // namespace
}  // namespace fasa
