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

// fac_tokens of the given settings; auto as a count.
std::vector<TokenCount> counts_of(const Config& config, const Geometry& geometry, int32_t tokens) {
  std::vector<TokenCount> counts = config.fac_tokens(geometry.chunks());
  if (config.selection.fac_tokens.empty()) {
    counts = {{.tokens = budget_of(counts.front()).of(tokens, 1), .share = 0}};
  }
  return counts;
}

// The entries of the largest layer's set.
int64_t largest_set(const std::vector<TokenCount>& counts, int32_t tokens) {
  int32_t largest = 1;
  for (const TokenCount& count : counts) {
    largest = std::max(largest, budget_of(count).of(tokens, 1));
  }
  return largest;
}

}  // namespace

TuneSpace::TuneSpace(Config given, const Geometry& geometry, int64_t tokens, bool allow_fac_tokens)
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
  const std::vector<TokenCount> counts = counts_of(given_, geometry, seen);
  add_prefetch(geometry.layers);
  add_hot_rows(largest_set(counts, seen), tokens);
  add_streams();
  if (allow_fac_tokens) add_fac_tokens(geometry, counts);
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

// Tries fewer tokens. Without a low-bit set, also tries fewer tokens with a low-bit set of twice
// the given number: low-bit codes on the device cost no transfer.
void TuneSpace::add_fac_tokens(const Geometry& geometry, const std::vector<TokenCount>& given) {
  std::vector<Turn> axis{keep};
  for (const int divisor : {2, 4}) {
    std::vector<TokenCount> fewer = given;
    const int64_t floor = given_.selection.sinks + given_.selection.recent + 1;
    for (TokenCount& count : fewer) {
      if (count.tokens > 0) count.tokens = std::max(floor, count.tokens / divisor);
      count.share /= divisor;
    }
    if (fewer == given) continue;
    axis.emplace_back([fewer](Config& c) { c.selection.fac_tokens = fewer; });
    const int chunks = geometry.chunks();
    if (given_.has_low_bit_set(chunks) || !given_.weighs_tokens(chunks)) continue;
    const TokenCount low_bit = {.tokens = 2 * given.front().tokens,
                                .share = std::min(1.0, 2 * given.front().share)};
    axis.emplace_back([fewer, low_bit](Config& c) {
      c.selection.fac_tokens = fewer;
      c.selection.low_bit_tokens = low_bit;
    });
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
  const bool none = config.selection.low_bit_tokens == TokenCount{};
  const std::string low_bit =
      none ? "" : fmt::format(", low_bit_tokens {}", value("selection", "low_bit_tokens"));
  return fmt::format("hot_rows {}, {}, streams {}, fac_tokens {}{}", value("placement", "hot_rows"),
                     prefetch, config.prefetch.streams, value("selection", "fac_tokens"), low_bit);
}

}  // namespace fasa
