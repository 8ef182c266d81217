// The settings that a tuner varies, and the values that it tries.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "runtime/base/geometry.h"
#include "runtime/config/config.h"
#include "runtime/tune/tune_search.h"

namespace fasa {

class TuneSpace {
 public:
  // Values around `given`, for decode steps of `tokens` tokens. Varies prefetch (depth and
  // predictor together), then hot rows and streams: nothing that costs accuracy. Throws UsageError
  // if nothing is fetched (rows on the device, full attention).
  TuneSpace(Config given, const Geometry& geometry, int64_t tokens);

  std::vector<size_t> sizes() const;
  TuneSearch::Point start() const { return TuneSearch::Point(axes_.size(), 0); }  // as given
  Config config(const TuneSearch::Point& point) const;

 private:
  using Turn = std::function<void(Config&)>;
  void add_hot_rows(int64_t set, int64_t tokens);
  void add_prefetch(int layers);
  void add_streams();

  Config given_;
  std::vector<std::vector<Turn>> axes_;  // the first value of each axis is the given one
};

// A short description of the varied settings: "hot_rows 1024, no prefetch, streams 2".
std::string tuned_words(const Config& config);

}  // namespace fasa
