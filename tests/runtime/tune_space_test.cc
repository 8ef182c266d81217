#include "runtime/tune/tune_space.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <utility>

#include "runtime/base/error.h"
#include "runtime/catalog/geometry_catalog.h"

namespace fasa {
namespace {

using ::testing::HasSubstr;

Geometry small() { return find_model_shape("Llama-3.2-1B").geometry; }

template <typename Visit>
void visit_all(const TuneSpace& space, Visit visit) {
  const auto sizes = space.sizes();
  for (TuneSearch::Point point = space.start();;) {
    visit(space.config(point));
    size_t axis = 0;
    while (axis < sizes.size() && ++point[axis] == sizes[axis]) point[axis++] = 0;
    if (axis == sizes.size()) return;
  }
}

TEST(TuneSpace, BeginsWithWhatWasGivenAndNamesNothingTwice) {
  Config given;
  given.placement.hot_rows = 512;
  given.prefetch.depth = 1;
  given.prefetch.predictor = PredictorKind::kRunnersUp;
  const TuneSpace space(given, small(), 8192);
  EXPECT_EQ(tuned_words(space.config(space.start())), tuned_words(given));
  std::set<std::string> names;
  size_t points = 0;
  visit_all(space, [&](const Config& config) {
    names.insert(tuned_words(config) + std::to_string(static_cast<int>(config.prefetch.predictor)));
    ++points;
    EXPECT_NO_THROW(config.validate());
    EXPECT_NO_THROW(config.validate_for(small()));
    EXPECT_EQ(config.selection.fac_tokens, given.selection.fac_tokens);
  });
  EXPECT_EQ(names.size(), points);
  EXPECT_GT(points, 40u);
}

TEST(TuneSpace, HotRowsEndWithTheContext) {
  const TuneSpace space({}, small(), 600);
  std::set<int> rows;
  visit_all(space,
            [&](const Config& config) { rows.insert(config.placement.hot_rows.value_or(-1)); });
  EXPECT_EQ(rows, (std::set<int>{-1, 0, 160, 320, 600}));
}

TEST(TuneSpace, RefusesWhereNothingIsFetched) {
  const auto message = [](const char* preset) -> std::string {
    Config config;
    config.preset = preset;
    config.apply_preset();
    try {
      const TuneSpace space(config, small(), 100);
    } catch (const UsageError& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_THAT(message("full"), HasSubstr("selection.kind"));
  EXPECT_THAT(message("fasa-c"), HasSubstr("placement.rows"));
  EXPECT_EQ(message("fasa-m"), "");
}

}  // namespace
}  // namespace fasa
