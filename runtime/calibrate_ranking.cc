#include "runtime/calibrate_ranking.h"

#include <fmt/format.h>
#include <tbb/enumerable_thread_specific.h>

#include <algorithm>
#include <array>
#include <numeric>

#include "runtime/base/error.h"
#include "runtime/base/parallel.h"
#include "runtime/calibrate_query.h"

namespace fasa {
namespace {

constexpr std::array<std::string_view, 4> kNames = {"far_mass", "mass", "far_ca", "ca"};

// All queries of a head, worked on side by side. Sums over queries are taken in their order.
class Ranker {
 public:
  Ranker(const HeadSamples& samples, const RankingOptions& options)
      : samples_(samples), options_(options), chunks_(static_cast<int>(samples.chunks.size())) {
    const SelectionRule rule{options.window, options.sinks, options.recent};
    queries_.resize(samples.query_count());
    for_each_query(
        [&](size_t q, QueryScratch& scratch) { queries_[q].emplace(samples, q, rule, scratch); });
  }

  // [chunks]: mean CA over queries and query heads, each weighted by its far mass if so asked.
  std::vector<double> agreement(bool by_far_mass) {
    std::vector<std::vector<double>> each(queries_.size());
    for_each_query([&](size_t q, QueryScratch& scratch) { each[q] = query(q).agreement(scratch); });
    std::vector<double> mean(static_cast<size_t>(chunks_));
    double weights = 0;
    for (size_t q = 0; q < queries_.size(); ++q) {
      for (int head = 0; head < samples_.group; ++head) {
        const double weight = by_far_mass ? query(q).far_mass(head) : 1.0;
        weights += weight;
        for (size_t c = 0; c < mean.size(); ++c) {
          mean[c] += weight * each[q][static_cast<size_t>(head) * mean.size() + c];
        }
      }
    }
    for (double& value : mean) value = weights > 0 ? value / weights : 0;
    return mean;
  }

  std::vector<int> greedy_order() {
    const int all = samples_.key_dim;
    const int depth = options_.greedy_chunks == 0 ? all : std::min(2 * options_.greedy_chunks, all);
    std::vector<int> order, left(static_cast<size_t>(chunks_));
    std::iota(left.begin(), left.end(), 0);
    std::vector<ScoreRows> rows(queries_.size());
    int taken = 0;  // dimensions
    while (!left.empty()) {
      const std::vector<double> gains = captured_with(rows, left);
      const auto best = std::max_element(gains.begin(), gains.end()) - gains.begin();
      taken += dims_of(left[static_cast<size_t>(best)]);
      if (taken >= depth) {
        sort_by(gains, left);
        order.insert(order.end(), left.begin(), left.end());
        break;
      }
      const int chunk = left[static_cast<size_t>(best)];
      left.erase(left.begin() + best);
      order.push_back(chunk);
      for_each_query([&](size_t q, QueryScratch&) { query(q).add_chunk(chunk, rows[q]); });
    }
    return order;
  }

  // The chunks, best first; equals in their natural order.
  static std::vector<int> order_of(const std::vector<double>& values) {
    std::vector<int> order(values.size());
    std::iota(order.begin(), order.end(), 0);
    sort_by(values, order);
    return order;
  }

  // Share of the oracle's far mass after 1, 2, ... FCs.
  std::vector<double> far_mass_kept(const std::vector<int>& order) {
    double oracle = 0;
    for (size_t q = 0; q < queries_.size(); ++q) oracle += query(q).oracle_far();
    std::vector<std::vector<double>> each(queries_.size());
    for_each_query([&](size_t q, QueryScratch& scratch) {
      ScoreRows rows;
      for (const int chunk : order) {
        query(q).add_chunk(chunk, rows);
        each[q].push_back(query(q).captured_far(rows, -1, scratch));
      }
    });
    std::vector<double> kept(order.size());
    for (const auto& captured : each) {
      for (size_t i = 0; i < kept.size(); ++i) kept[i] += captured[i];
    }
    // Where nothing is far, nothing is lost.
    for (double& value : kept) value = oracle > 0 ? value / oracle : 1;
    return kept;
  }

 private:
  int dims_of(int chunk) const {
    return samples_.chunks[static_cast<size_t>(chunk)].single() ? 1 : 2;
  }
  CalibrationQuery& query(size_t q) { return *queries_[q]; }

  template <typename Body>
  void for_each_query(const Body& body) {
    parallel_for(size_t{0}, queries_.size(), [&](size_t q) { body(q, scratch_.local()); });
  }

  static void sort_by(const std::vector<double>& values, std::vector<int>& items) {
    std::vector<size_t> places(items.size());
    std::iota(places.begin(), places.end(), size_t{0});
    std::stable_sort(places.begin(), places.end(),
                     [&](size_t a, size_t b) { return values[a] > values[b]; });
    std::vector<int> sorted;
    for (const size_t place : places) sorted.push_back(items[place]);
    items = std::move(sorted);
  }

  // [candidates]: mass captured over all queries by the picked FCs and each candidate.
  std::vector<double> captured_with(const std::vector<ScoreRows>& rows,
                                    const std::vector<int>& candidates) {
    std::vector<std::vector<double>> each(queries_.size());
    for_each_query([&](size_t q, QueryScratch& scratch) {
      for (const int chunk : candidates) {
        each[q].push_back(options_.objective == Objective::kMass
                              ? query(q).captured(rows[q], chunk, scratch)
                              : query(q).captured_far(rows[q], chunk, scratch));
      }
    });
    std::vector<double> total(candidates.size());
    for (const auto& gains : each) {
      for (size_t c = 0; c < total.size(); ++c) total[c] += gains[c];
    }
    return total;
  }

  const HeadSamples& samples_;
  const RankingOptions& options_;
  int chunks_;
  std::vector<std::optional<CalibrationQuery>> queries_;
  tbb::enumerable_thread_specific<QueryScratch> scratch_;
};

}  // namespace

std::string_view objective_name(Objective objective) {
  return kNames[static_cast<size_t>(objective)];
}

std::optional<Objective> parse_objective(std::string_view name) {
  const auto found = std::find(kNames.begin(), kNames.end(), name);
  if (found == kNames.end()) return std::nullopt;
  return static_cast<Objective>(found - kNames.begin());
}

HeadRanking rank_chunks(const HeadSamples& samples, const RankingOptions& options) {
  if (options.window <= options.sinks + options.recent) {
    throw UsageError(fmt::format(
        "window = {}: allowed: more than sinks + recent ({}), which are always selected",
        options.window, options.sinks + options.recent));
  }
  Ranker ranker(samples, options);
  HeadRanking ranking;
  ranking.agreement = ranker.agreement(false);
  std::vector<int> order;
  switch (options.objective) {
    case Objective::kCa:
      order = Ranker::order_of(ranking.agreement);
      break;
    case Objective::kFarCa:
      order = Ranker::order_of(ranker.agreement(true));
      break;
    case Objective::kMass:
    case Objective::kFarMass:
      order = ranker.greedy_order();
      break;
  }
  for (const int chunk : order) {
    const Geometry::Pair dims = samples.chunks[static_cast<size_t>(chunk)];
    ranking.chunks.push_back({dims.first});
    if (!dims.single()) ranking.chunks.back().push_back(dims.second);
  }
  ranking.far_mass_kept = ranker.far_mass_kept(order);
  return ranking;
}

}  // namespace fasa
