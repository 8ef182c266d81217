// Nothing is predicted.
#pragma once

#include <memory>
#include <string_view>

#include "scheduler/prefetch/predictor_table.h"

namespace fasa {

class NonePredictor final : public Predictor {
 public:
  static constexpr std::string_view kName = "none";
  static constexpr std::string_view kHelp = "no prediction";
  static constexpr bool kByQueries = false;
  static constexpr bool kWritesSets = false;
  static int max_depth(int, int) { return 0; }
  static std::unique_ptr<Predictor> make(const PredictorParts&) {
    return std::make_unique<NonePredictor>();
  }

  int max_depth() const override { return 0; }
  bool writes_sets() const override { return kWritesSets; }
  void predict(const PredictedSet&) override {}
};

}  // namespace fasa
