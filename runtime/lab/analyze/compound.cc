#include "runtime/lab/analyze/compound.h"

#include <fmt/format.h>

#include <algorithm>

#include "runtime/lab/analyze/analysis_text.h"
#include "runtime/lab/analyze/head_query.h"

namespace fasa {
namespace {

constexpr int64_t kStreamingSinks = 8;
constexpr int64_t kPool = 7;

// The maximum of each value and its neighbours, kPool in all.
std::vector<float> max_pooled(const std::vector<float>& values) {
  std::vector<float> pooled(values.size());
  for (size_t i = 0; i < values.size(); ++i) {
    const size_t first = i < kPool / 2 ? 0 : i - kPool / 2;
    const size_t end = std::min(values.size(), i + kPool / 2 + 1);
    pooled[i] = *std::max_element(values.begin() + static_cast<int64_t>(first),
                                  values.begin() + static_cast<int64_t>(end));
  }
  return pooled;
}

}  // namespace

TokenSet streaming_tokens(int64_t tokens, int64_t k) {
  TokenSet set(static_cast<size_t>(tokens));
  const int64_t sinks = std::min({kStreamingSinks, k, tokens});
  std::fill(set.begin(), set.begin() + sinks, uint8_t{1});
  std::fill(set.end() - std::min(k - sinks, tokens - sinks), set.end(), uint8_t{1});
  return set;
}

SnapkvChoice::SnapkvChoice(const HeadSamples& samples, size_t anchor, int head)
    : visible_(HeadQuery(samples, anchor, head).tokens()),
      window_(std::min<int64_t>(kObservationWindow, visible_)) {
  const auto before = static_cast<size_t>(visible_ - window_);
  const int64_t first = samples.visible_first(anchor);
  std::vector<float> weights(before);
  for (size_t query = anchor + 1; query-- > 0;) {
    if (samples.positions[query] <= samples.positions[anchor] - window_) break;
    const auto own = HeadQuery(samples, query, head).weights();
    const auto shift = static_cast<size_t>(first - samples.visible_first(query));
    for (size_t i = 0; i < before && i + shift < own.size(); ++i) weights[i] += own[i + shift];
  }
  merits_ = max_pooled(weights);
}

TokenSet SnapkvChoice::tokens(int64_t k) const {
  TokenSet set = best_tokens(merits_, std::max<int64_t>(0, k - window_));
  set.resize(static_cast<size_t>(visible_));
  std::fill(set.end() - std::min(k, window_), set.end(), uint8_t{1});
  return set;
}

Compound::Compound(int chunks, std::vector<int64_t> windows) : windows_(std::move(windows)) {
  for (const int of_64 : {8, 10, 12, 14, 16}) counts_.push_back(std::max(1, chunks * of_64 / 64));
  rows_ = {"random", "streaming", "snapkv"};
  for (const int count : counts_) rows_.push_back(fmt::format("{} of {} FCs", count, chunks));
  rows_.push_back(fmt::format("all {} FCs, int2", chunks));
  sums_.assign(rows_.size(), std::vector<double>(windows_.size()));
  queries_.assign(windows_.size(), 0);
}

void Compound::add(const HeadSamples& samples, const HeadSamples& int2,
                   std::span<const size_t> anchors, std::span<const std::vector<int>> ranked) {
  for (size_t i = 1; i < anchors.size(); i += 2) {
    for (int head = 0; head < samples.gqa_group; ++head) {
      const HeadQuery query(samples, anchors[i], head);
      const std::vector<float> whole = query.scores();
      std::vector<std::vector<float>> parts;
      for (const int count : counts_) {
        const auto& order = ranked[static_cast<size_t>(head)];
        parts.push_back(query.scores(std::span(order).first(static_cast<size_t>(count))));
      }
      parts.push_back(HeadQuery(int2, anchors[i], head).scores());
      const SnapkvChoice snapkv(samples, anchors[i], head);
      for (size_t w = 0; w < windows_.size(); ++w) {
        const int64_t k = windows_[w];
        if (k >= query.tokens()) continue;
        const TokenSet best = best_tokens(whole, k);
        ++queries_[w];
        const auto share = [&](const TokenSet& set) {
          return static_cast<double>(common(best, set)) / static_cast<double>(k);
        };
        sums_[0][w] += static_cast<double>(k) / static_cast<double>(query.tokens());
        sums_[1][w] += share(streaming_tokens(query.tokens(), k));
        sums_[2][w] += share(snapkv.tokens(k));
        for (size_t part = 0; part < parts.size(); ++part) {
          sums_[3 + part][w] += share(best_tokens(parts[part], k));
        }
      }
    }
  }
}

CompoundTable Compound::table() const {
  CompoundTable table{.windows = windows_, .rows = rows_, .share = sums_};
  for (auto& row : table.share) {
    for (size_t w = 0; w < windows_.size(); ++w) {
      row[w] = queries_[w] == 0 ? -1 : row[w] / static_cast<double>(queries_[w]);
    }
  }
  return table;
}

}  // namespace fasa
