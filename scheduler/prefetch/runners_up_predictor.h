// Predicts the best-ranked tokens behind the last step's set of the same layer, which its select
// listed (RunnersUp): no scoring.
#pragma once

#include <memory>
#include <string_view>

#include "scheduler/prefetch/predictor_table.h"

namespace fasa {

class RunnersUpPredictor final : public Predictor {
 public:
  static constexpr std::string_view kName = "runners-up";
  static constexpr std::string_view kHelp = "the best tokens behind the layer's last set";
  static constexpr bool kByQueries = false;
  static constexpr bool kWritesSets = false;
  static int max_depth(int layers, int) { return layers - 1; }
  static std::unique_ptr<Predictor> make(const PredictorParts& parts) {
    return std::make_unique<RunnersUpPredictor>(parts.layers);
  }

  explicit RunnersUpPredictor(int layers) : max_depth_(max_depth(layers, 0)) {}
  int max_depth() const override { return max_depth_; }
  bool writes_sets() const override { return kWritesSets; }
  void predict(const PredictedSet&) override {}

 private:
  int max_depth_;
};

}  // namespace fasa
