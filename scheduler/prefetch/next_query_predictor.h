// Estimates the later layer's query from the present layer's state and selects on a part of each
// slice.
#pragma once

#include <memory>
#include <string_view>

#include "scheduler/prefetch/predictor_table.h"

namespace fasa {

class NextQueryPredictor final : public Predictor {
 public:
  static constexpr std::string_view kName = "next-query";
  static constexpr std::string_view kHelp =
      "the set that an estimated query of the later layer selects";
  static constexpr bool kByQueries = true;
  static constexpr bool kWritesSets = true;
  static int max_depth(int, int source_depth) { return source_depth; }
  static std::unique_ptr<Predictor> make(const PredictorParts& parts) {
    return std::make_unique<NextQueryPredictor>(parts.device, *parts.source);
  }

  // Both outlive it.
  NextQueryPredictor(Device& device, QuerySource& source) : device_(device), source_(source) {}
  int max_depth() const override { return source_.max_depth(); }
  bool writes_sets() const override { return kWritesSets; }
  void predict(const PredictedSet& prediction) override;

 private:
  Device& device_;
  QuerySource& source_;
};

}  // namespace fasa
