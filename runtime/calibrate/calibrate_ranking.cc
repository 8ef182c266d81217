#include "runtime/calibrate/calibrate_ranking.h"

#include <fmt/format.h>
#include <tbb/enumerable_thread_specific.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <numeric>
#include <optional>

#include "kernels/slice_format.h"
#include "runtime/base/parallel.h"
#include "runtime/base/require.h"
#include "runtime/calibrate/calibrate_query.h"

namespace fasa {
namespace {

constexpr std::array<std::string_view, 2> kNames = {"distant_attention", "ca"};

constexpr size_t kAgreementStep = 4;

struct Order {
  std::vector<int> chunks;  // best first
  // Distant attention of all queries after the first 1, 2, ... chunks.
  std::vector<double> captured;
};

// The queries first, first + step, ...
struct Part {
  size_t first = 0;
  size_t step = 1;
};

// All queries of a head, processed in parallel. Sums over queries have a fixed order.
class Ranker {
 public:
  Ranker(const HeadSamples& samples, const RankingOptions& options)
      : samples_(samples), options_(options), chunks_(static_cast<int>(samples.chunks.size())) {
    const SelectionRule rule{options.window, options.sinks, options.recent};
    queries_.resize(samples.query_count());
    agreement_.resize(samples.query_count());
    // If the objective does not use agreement, it is measured on a part of the queries only.
    const size_t step = options.objective == Objective::kCa ? 1 : kAgreementStep;
    for_each_query([&](size_t q, QueryScratch& scratch) {
      ScoreRows truth;
      queries_[q].emplace(samples, q, rule, scratch, &truth);
      if (q % step == 0) agreement_[q] = query(q).agreement(truth, scratch);
    });
  }

  // [chunks]: mean CA over queries and query heads.
  std::vector<double> agreement() const {
    std::vector<double> mean(static_cast<size_t>(chunks_));
    double measured = 0;
    for (size_t q = 0; q < queries_.size(); ++q) {
      if (agreement_[q].empty()) continue;
      measured += samples_.gqa_group;
      for (size_t i = 0; i < agreement_[q].size(); ++i) {
        mean[i % mean.size()] += agreement_[q][i];
      }
    }
    for (double& value : mean) value = measured > 0 ? value / measured : 0;
    return mean;
  }

  Order greedy_order() {
    const int all = samples_.key_dim;
    const int depth = options_.greedy_chunks == 0 ? all : std::min(2 * options_.greedy_chunks, all);
    std::vector<int> left(static_cast<size_t>(chunks_));
    std::iota(left.begin(), left.end(), 0);
    std::vector<ScoreRows> rows(queries_.size());
    Order order;
    for (int taken = 0; taken < depth && !left.empty();) {
      const Candidate best = race(rows, left);
      taken += dims_of(best.chunk);
      std::erase(left, best.chunk);
      if (taken >= depth) sort_by(captured_with(rows, left, {}), left);
      order.chunks.push_back(best.chunk);
      order.captured.push_back(best.captured);
      for_each_query([&](size_t q, QueryScratch& scratch) {
        query(q).add_chunk(best.chunk, rows[q], scratch);
      });
    }
    order.chunks.insert(order.chunks.end(), left.begin(), left.end());
    return order;
  }

  // The chunks, best first; ties in natural order.
  static Order order_of(const std::vector<double>& values) {
    Order order;
    order.chunks.resize(values.size());
    std::iota(order.chunks.begin(), order.chunks.end(), 0);
    sort_by(values, order.chunks);
    return order;
  }

  // Share of the oracle's distant attention after 1, 2, ... FCs.
  std::vector<double> distant_attention_kept(const Order& order) {
    double oracle = 0;
    for (size_t q = 0; q < queries_.size(); ++q) oracle += query(q).oracle_distant();
    std::vector<double> kept = order.captured;
    kept.resize(order.chunks.size());
    if (order.captured.size() < order.chunks.size()) add_captured(order, kept);
    // A head without distant attention loses nothing.
    for (double& value : kept) value = oracle > 0 ? value / oracle : 1;
    return kept;
  }

 private:
  struct Candidate {
    int chunk;
    double captured;  // over the queries evaluated
  };

  int dims_of(int chunk) const {
    return samples_.chunks[static_cast<size_t>(chunk)].single() ? 1 : 2;
  }
  const CalibrationQuery& query(size_t q) const { return *queries_[q]; }

  template <typename Body>
  void for_each_query(const Body& body, Part part = {}) {
    const size_t count = queries_.size();
    const size_t asked = count <= part.first ? 0 : (count - part.first - 1) / part.step + 1;
    parallel_for(size_t{0}, asked,
                 [&](size_t i) { body(part.first + i * part.step, scratch_.local()); });
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

  // The candidate that captures most together with the picked FCs, by successive halving: all are
  // evaluated on an eighth of the queries, the better half on another eighth, the better quarter on
  // another quarter, and the best few on the last half. A part has at least eight queries; with
  // fewer than sixteen, all candidates are evaluated on all queries, an exact comparison.
  Candidate race(const std::vector<ScoreRows>& rows, const std::vector<int>& chunks) {
    constexpr size_t kMin = 2;
    std::vector<Candidate> running;
    for (const int chunk : chunks) running.push_back({chunk, 0});
    size_t step = std::bit_floor(std::clamp<size_t>(queries_.size() / 8, 1, 8));
    for (Part part{0, step};; part = {step / 2, step}, step /= 2) {
      std::vector<int> asked;
      for (const Candidate& one : running) asked.push_back(one.chunk);
      const std::vector<double> more = captured_with(rows, asked, part);
      for (size_t c = 0; c < running.size(); ++c) running[c].captured += more[c];
      std::stable_sort(running.begin(), running.end(), [](const Candidate& a, const Candidate& b) {
        return a.captured > b.captured;
      });
      if (step == 1) return running.front();
      running.resize(std::min(running.size(), std::max(kMin, (running.size() + 1) / 2)));
    }
  }

  // [candidates]: attention captured by the picked FCs and each candidate, over the part's queries.
  std::vector<double> captured_with(const std::vector<ScoreRows>& rows,
                                    const std::vector<int>& candidates, Part part) {
    std::vector<std::vector<double>> each(queries_.size());
    for_each_query(
        [&](size_t q, QueryScratch& scratch) {
          for (const int chunk : candidates) {
            each[q].push_back(query(q).captured_distant(rows[q], chunk, scratch));
          }
        },
        part);
    std::vector<double> total(candidates.size());
    for (const auto& gains : each) {
      for (size_t c = 0; c < gains.size(); ++c) total[c] += gains[c];
    }
    return total;
  }

  // kept[i] = distant attention that the first i + 1 chunks capture, for entries that the order
  // lacks.
  void add_captured(const Order& order, std::vector<double>& kept) {
    const size_t known = order.captured.size();
    std::vector<std::vector<double>> each(queries_.size());
    for_each_query([&](size_t q, QueryScratch& scratch) {
      ScoreRows rows;
      for (size_t i = 0; i < order.chunks.size(); ++i) {
        query(q).add_chunk(order.chunks[i], rows, scratch);
        if (i >= known) each[q].push_back(query(q).captured_distant(rows, -1, scratch));
      }
    });
    for (const auto& captured : each) {
      for (size_t i = 0; i < captured.size(); ++i) kept[known + i] += captured[i];
    }
  }

  const HeadSamples& samples_;
  const RankingOptions& options_;
  int chunks_;
  std::vector<std::optional<CalibrationQuery>> queries_;
  std::vector<std::vector<double>> agreement_;  // [queries]: [group][chunks], or empty
  tbb::enumerable_thread_specific<QueryScratch> scratch_;
};

// Codes round a dimension by a step in proportion to its spread within a page.
std::vector<double> code_energy(const HeadSamples& samples) {
  std::vector<double> energy(static_cast<size_t>(samples.key_dim));
  int64_t seen = samples.tokens;  // by any query
  for (size_t q = 0; q < samples.query_count(); ++q) {
    seen = std::min(seen, samples.visible_first(q));
  }
  const int64_t first = (seen + kPageTokens - 1) / kPageTokens * kPageTokens;
  double sum = 0;
  for (int dim = 0; dim < samples.key_dim; ++dim) {
    double queries = 0;
    for (size_t i = static_cast<size_t>(dim); i < samples.queries.size();
         i += static_cast<size_t>(samples.key_dim)) {
      queries += double{samples.queries[i]} * double{samples.queries[i]};
    }
    double spread = 0;
    const float* keys = samples.key_plane(dim);
    for (int64_t page = first; page + kPageTokens <= samples.tokens; page += kPageTokens) {
      const double mean =
          std::accumulate(keys + page, keys + page + kPageTokens, 0.0) / kPageTokens;
      for (int64_t t = page; t < page + kPageTokens; ++t) {
        spread += (double{keys[t]} - mean) * (double{keys[t]} - mean);
      }
    }
    sum += energy[static_cast<size_t>(dim)] = queries * spread;
  }
  for (double& value : energy) value = sum > 0 && std::isfinite(sum) ? value / sum : 0;
  return energy;
}

}  // namespace

std::string_view objective_name(Objective objective) {
  return kNames[static_cast<size_t>(objective)];
}

Objective parse_objective(std::string_view name, std::string_view option) {
  const auto found = std::find(kNames.begin(), kNames.end(), name);
  require(found != kNames.end(), option, fmt::format("\"{}\"", name),
          fmt::format("{}", fmt::join(kNames, ", ")));
  return static_cast<Objective>(found - kNames.begin());
}

HeadRanking rank_chunks(const HeadSamples& samples, const RankingOptions& options) {
  const int given = options.sinks + options.recent;
  require(options.window > given, "window", options.window,
          fmt::format("more than sinks + recent ({}), which are always selected", given));
  Ranker ranker(samples, options);
  HeadRanking ranking;
  ranking.agreement = ranker.agreement();
  const Order order = options.objective == Objective::kCa ? Ranker::order_of(ranking.agreement)
                                                          : ranker.greedy_order();
  for (const int chunk : order.chunks) {
    const Geometry::Pair dims = samples.chunks[static_cast<size_t>(chunk)];
    ranking.chunks.push_back({dims.first});
    if (!dims.single()) ranking.chunks.back().push_back(dims.second);
  }
  ranking.distant_attention_kept = ranker.distant_attention_kept(order);
  ranking.energy = code_energy(samples);
  return ranking;
}

}  // namespace fasa
