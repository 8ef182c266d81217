#include "runtime/tune/tune_space.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "runtime/base/error.h"
#include "runtime/config/config_options.h"
#include "runtime/config/layer_budgets.h"

namespace fasa {
namespace {

constexpr int64_t kMaxHotRows = 16777216;  // that the option allows

void keep(Config&) {}

}  // namespace

TuneSpace::TuneSpace(Config given, const Geometry& geometry, int64_t tokens)
    : given_(std::move(given)) {
  if (given_.selection.kind != SelectionKind::kFasa) {
    throw UsageError(fmt::format("selection.kind = {} has nothing to tune; allowed: fasa",
                                 selection_name(given_.selection.kind)));
  }
  if (given_.placement.rows == RowPlacement::kDevice) {
    throw UsageError(
        "placement.rows = device has nothing to tune, because no rows are fetched; allowed: host "
        "(preset fasa-m)");
  }
  const auto seen = static_cast<int32_t>(std::min<int64_t>(tokens, INT32_MAX));
  int32_t largest = 1;
  for (const TokenCount& count : given_.fac_tokens(geometry.chunks())) {
    largest = std::max(largest, budget_of(count).of(seen, 1));
  }
  add_prefetch(geometry.layers);
  add_hot_rows(largest, tokens);
  add_streams();
}

std::vector<size_t> TuneSpace::sizes() const {
  std::vector<size_t> sizes;
  for (const auto& axis : axes_) sizes.push_back(axis.size());
  return sizes;
}

Config TuneSpace::config(const TuneSearch::Point& point) const {
  Config config = given_;
  for (size_t axis = 0; axis < axes_.size(); ++axis) axes_[axis][point[axis]](config);
  return config;
}

void TuneSpace::add_hot_rows(int64_t set, int64_t tokens) {
  std::vector<Turn> axis{keep};
  int64_t last = -1;
  for (const double sets : {0.0, 0.5, 1.0, 2.0, 3.0, 4.0, 8.0, 16.0}) {
    const auto wanted = static_cast<int64_t>(sets * static_cast<double>(set));
    const int64_t rows = std::min({wanted, tokens, kMaxHotRows});
    if (rows == std::exchange(last, rows) || given_.placement.hot_rows == rows) continue;
    axis.emplace_back([rows](Config& c) { c.placement.hot_rows = static_cast<int>(rows); });
  }
  axes_.push_back(std::move(axis));
}

void TuneSpace::add_prefetch(int layers) {
  std::vector<Turn> axis{keep};
  const auto add = [&](std::optional<int> depth, PredictorKind predictor) {
    if (given_.prefetch.depth == depth && given_.prefetch.predictor == predictor) return;
    axis.emplace_back([depth, predictor](Config& c) {
      c.prefetch.depth = depth;
      c.prefetch.predictor = predictor;
    });
  };
  add(0, PredictorKind::kAuto);
  // Runners-up are known since the last step: deeper ones are the same rows.
  if (layers > 1) add(1, PredictorKind::kRunnersUp);
  axes_.push_back(std::move(axis));
}

void TuneSpace::add_streams() {
  std::vector<Turn> axis{keep};
  for (const int streams : {1, 2, 4}) {
    if (streams == given_.prefetch.streams) continue;
    axis.emplace_back([streams](Config& c) { c.prefetch.streams = streams; });
  }
  axes_.push_back(std::move(axis));
}

std::string tuned_words(const Config& config) {
  const auto value = [&](const char* table, const char* key) {
    const nlohmann::json json = find_option(table, key)->get(config);
    return json.is_string() ? json.get<std::string>() : json.dump();
  };
  const bool off = config.prefetch.depth == 0 || config.prefetch.predictor == PredictorKind::kNone;
  const std::string prefetch =
      off ? "no prefetch"
          : fmt::format("predictor {} depth {}", value("prefetch", "predictor"),
                        value("prefetch", "depth"));
  return fmt::format("hot_rows {}, {}, streams {}", value("placement", "hot_rows"), prefetch,
                     config.prefetch.streams);
}

}  // namespace fasa
