#include "runtime/calibrate_query.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

namespace fasa {
namespace {

constexpr float kNone = -std::numeric_limits<float>::infinity();

// A query head's two factors and the two key planes of one FC; of a single dimension the second
// factor is zero.
struct ChunkTerm {
  float first, second;
  const float* first_keys;
  const float* second_keys;
};

ChunkTerm term_of(const HeadSamples& samples, int chunk, const float* query, int64_t first_token) {
  const Geometry::Pair dims = samples.chunks[static_cast<size_t>(chunk)];
  return {query[dims.first], dims.single() ? 0.0f : query[dims.second],
          samples.key_plane(dims.first) + first_token,
          samples.key_plane(dims.second) + first_token};
}

// out[t] = base[t] + the FC's part (base null: zero); returns the maximum, NaN left out. Eight
// maxima side by side, since the compiler may not reorder comparisons of floats by itself.
float score(const float* base, const ChunkTerm& term, float* out, size_t count) {
  constexpr size_t kLanes = 8;
  std::array<float, kLanes> best;
  best.fill(kNone);
  const auto at = [&](size_t t) {
    const float part = term.first * term.first_keys[t] + term.second * term.second_keys[t];
    return base == nullptr ? part : base[t] + part;
  };
  size_t t = 0;
  for (; t + kLanes <= count; t += kLanes) {
    for (size_t lane = 0; lane < kLanes; ++lane) {
      const float value = at(t + lane);
      out[t + lane] = value;
      best[lane] = value > best[lane] ? value : best[lane];
    }
  }
  for (; t < count; ++t) {
    out[t] = at(t);
    best[0] = out[t] > best[0] ? out[t] : best[0];
  }
  return *std::max_element(best.begin(), best.end());
}

float maximum(std::span<const float> values) {
  float best = kNone;
  for (const float value : values) best = value > best ? value : best;
  return best;
}

// combined = max(combined, row - row's maximum); NaN counts as -infinity.
void fold(std::span<const float> row, float row_maximum, std::vector<float>& combined) {
  for (size_t t = 0; t < row.size(); ++t) {
    const float relative = row[t] - row_maximum;
    combined[t] = relative > combined[t] ? relative : combined[t];
  }
}

}  // namespace

CalibrationQuery::CalibrationQuery(const HeadSamples& samples, size_t index,
                                   const SelectionRule& rule, QueryScratch& scratch)
    : samples_(&samples),
      index_(index),
      rule_(rule),
      first_(samples.visible_first(index)),
      end_(samples.visible_end(index)),
      far_first_(std::clamp<int64_t>(rule.sinks - first_, 0, end_ - first_)),
      far_end_(std::max(far_first_, end_ - first_ - rule.recent)),
      mass_(count()) {
  alibi_ = alibi_rows();
  const ScoreRows rows = true_scores();
  for (int head = 0; head < samples.group; ++head) {
    const std::span<const float> row(rows.data() + static_cast<size_t>(head) * count(), count());
    const float top = maximum(row);
    std::vector<double> weights(count());
    double sum = 0;
    for (size_t t = 0; t < count(); ++t) {
      const double weight = std::exp(double{samples.scale} * (double{row[t]} - double{top}));
      weights[t] = weight >= 0 ? weight : 0;  // NaN and infinite scores attend to nothing
      sum += weights[t];
    }
    double far = 0;
    for (size_t t = 0; t < count(); ++t) {
      const double mass = sum > 0 ? weights[t] / sum : 0;
      mass_[t] += static_cast<float>(mass);
      const auto position = static_cast<int64_t>(t);
      if (position >= far_first_ && position < far_end_) far += mass;
    }
    far_mass_.push_back(far);
  }
  oracle_far_ = captured_far(rows, -1, scratch);
}

ScoreRows CalibrationQuery::alibi_rows() const {
  ScoreRows rows;
  for (const float slope : samples_->slopes) {
    for (int64_t t = first_; t < end_; ++t)
      rows.push_back(slope * static_cast<float>(t + 1 - end_));
  }
  return rows;
}

ScoreRows CalibrationQuery::true_scores() const {
  ScoreRows rows;
  for (int chunk = 0; chunk < static_cast<int>(samples_->chunks.size()); ++chunk) {
    add_chunk(chunk, rows);
  }
  return rows;
}

void CalibrationQuery::add_chunk(int chunk, ScoreRows& rows) const {
  if (rows.empty()) rows = alibi_;
  rows.resize(count() * static_cast<size_t>(samples_->group), 0.0f);
  for (int head = 0; head < samples_->group; ++head) {
    float* row = rows.data() + static_cast<size_t>(head) * count();
    score(row, term_of(*samples_, chunk, samples_->query(index_, head), first_), row, count());
  }
}

void CalibrationQuery::combine(const ScoreRows& rows, int chunk, QueryScratch& scratch) const {
  scratch.combined.assign(count(), kNone);
  scratch.row.resize(count());
  for (int head = 0; head < samples_->group; ++head) {
    const ScoreRows& begun = rows.empty() ? alibi_ : rows;
    const float* row = begun.empty() ? nullptr : begun.data() + static_cast<size_t>(head) * count();
    if (chunk < 0) {
      const std::span<const float> as_is(row, count());
      fold(as_is, maximum(as_is), scratch.combined);
      continue;
    }
    const ChunkTerm term = term_of(*samples_, chunk, samples_->query(index_, head), first_);
    const float top = score(row, term, scratch.row.data(), count());
    fold(scratch.row, top, scratch.combined);
  }
}

double CalibrationQuery::captured_far(const ScoreRows& rows, int chunk,
                                      QueryScratch& scratch) const {
  combine(rows, chunk, scratch);
  const auto first = static_cast<size_t>(far_first_);
  const auto far = static_cast<size_t>(far_end_ - far_first_);
  const int64_t given = static_cast<int64_t>(count() - far);
  scratch.selector.select(std::span<const float>(scratch.combined).subspan(first, far),
                          rule_.window - given);
  return scratch.selector.sum(std::span<const float>(mass_).subspan(first, far));
}

double CalibrationQuery::captured(const ScoreRows& rows, int chunk, QueryScratch& scratch) const {
  combine(rows, chunk, scratch);
  scratch.selector.select(scratch.combined, rule_.window);
  return scratch.selector.sum(mass_);
}

std::vector<double> CalibrationQuery::agreement(QueryScratch& scratch) const {
  const ScoreRows rows = true_scores();
  const int64_t k = std::min<int64_t>(rule_.window, end_ - first_);
  scratch.best.resize(count());
  scratch.own.resize(count());
  scratch.row.resize(count());
  const auto mark = [&](std::span<const float> row, float top, std::vector<uint8_t>& set) {
    scratch.combined.assign(count(), kNone);
    fold(row, top, scratch.combined);
    scratch.selector.select(scratch.combined, k);
    scratch.selector.mark(set);
  };
  std::vector<double> result;
  for (int head = 0; head < samples_->group; ++head) {
    const std::span<const float> whole(rows.data() + static_cast<size_t>(head) * count(), count());
    mark(whole, maximum(whole), scratch.best);
    const float* query = samples_->query(index_, head);
    const float* alibi =
        alibi_.empty() ? nullptr : alibi_.data() + static_cast<size_t>(head) * count();
    for (int chunk = 0; chunk < static_cast<int>(samples_->chunks.size()); ++chunk) {
      const ChunkTerm term = term_of(*samples_, chunk, query, first_);
      const float top = score(alibi, term, scratch.row.data(), count());
      mark(scratch.row, top, scratch.own);
      int64_t both = 0;
      for (size_t t = 0; t < count(); ++t) both += scratch.best[t] & scratch.own[t];
      result.push_back(static_cast<double>(both) / static_cast<double>(k));
    }
  }
  return result;
}

}  // namespace fasa
