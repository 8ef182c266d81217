// Predicts the last step's set of the same layer. Hot rows still hold it, so only the rows that
// were lost when the table was invalidated (by a truncation or an aborted step) are fetched. The
// table itself lists them.
#pragma once

#include <memory>
#include <string_view>

#include "scheduler/prefetch/predictor_table.h"

namespace fasa {

class PreviousStepPredictor final : public Predictor {
 public:
  static constexpr std::string_view kName = "previous-step";
  static constexpr std::string_view kHelp = "the layer's set of the step before";
  static constexpr bool kByQueries = false;
  static constexpr bool kWritesSets = false;
  static int max_depth(int layers, int) { return layers - 1; }
  static std::unique_ptr<Predictor> make(const PredictorParts& parts) {
    return std::make_unique<PreviousStepPredictor>(parts.layers);
  }

  explicit PreviousStepPredictor(int layers) : max_depth_(max_depth(layers, 0)) {}
  int max_depth() const override { return max_depth_; }
  bool writes_sets() const override { return kWritesSets; }
  void predict(const PredictedSet&) override {}

 private:
  int max_depth_;
};

}  // namespace fasa
