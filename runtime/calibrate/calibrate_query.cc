#include "runtime/calibrate/calibrate_query.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace fasa {
namespace {

constexpr int32_t kGiven = std::numeric_limits<int32_t>::max();  // worse than kNoScore

}  // namespace

CalibrationQuery::CalibrationQuery(const HeadSamples& samples, size_t index,
                                   const SelectionRule& rule, QueryScratch& scratch,
                                   ScoreRows* truth)
    : samples_(&samples),
      bodies_(&cpu::rank_bodies(cpu::active_target())),
      index_(index),
      rule_(rule),
      first_(samples.visible_first(index)),
      end_(samples.visible_end(index)),
      distant_first_(std::clamp<int64_t>(rule.sinks - first_, 0, end_ - first_)),
      distant_end_(std::max(distant_first_, end_ - first_ - rule.recent)),
      attention_(static_cast<size_t>(end_ - first_)) {
  alibi_ = alibi_rows();
  ScoreRows rows = true_scores(scratch);
  const ScoreRows capped = capped_rows(rows);
  const ScoreRows& weighed = capped.empty() ? rows : capped;
  scratch.scores.resize(attention_.size());
  for (int head = 0; head < samples.gqa_group; ++head) {
    const float* row = weighed.data() + head * stride();
    // Tokens with NaN or infinite scores get no attention.
    const double sum = bodies_->weigh(row, tokens(), samples.scale, bodies_->best(row, tokens()),
                                      scratch.scores.data());
    const double share = sum > 0 ? 1 / sum : 0;
    for (size_t t = 0; t < attention_.size(); ++t) {
      attention_[t] += static_cast<float>(double{scratch.scores[t]} * share);
    }
  }
  oracle_distant_ = captured_distant(rows, -1, scratch);
  if (truth != nullptr) *truth = std::move(rows);
}

ScoreRows CalibrationQuery::alibi_rows() const {
  if (samples_->slopes.empty()) return {};
  ScoreRows rows(row_floats());
  for (int head = 0; head < samples_->gqa_group; ++head) {
    float* row = rows.data() + head * stride();
    const float slope = samples_->slopes[static_cast<size_t>(head)];
    for (int64_t t = 0; t < tokens(); ++t) row[t] = slope * static_cast<float>(t + 1 - tokens());
  }
  return rows;
}

ScoreRows CalibrationQuery::capped_rows(const ScoreRows& rows) const {
  if (samples_->score_cap == 0) return {};
  ScoreRows capped(rows.size());
  bodies_->soft_cap(rows.data(), std::ssize(rows), samples_->score_cap, capped.data());
  return capped;
}

ScoreRows CalibrationQuery::true_scores(QueryScratch& scratch) const {
  ScoreRows rows;
  for (int chunk = 0; chunk < static_cast<int>(samples_->chunks.size()); ++chunk) {
    add_chunk(chunk, rows, scratch);
  }
  return rows;
}

void CalibrationQuery::score(const ScoreRows& rows, int chunk, float* out,
                             QueryScratch& scratch) const {
  const Geometry::Pair dims = samples_->chunks[static_cast<size_t>(chunk)];
  scratch.first.clear();
  scratch.second.clear();
  for (int head = 0; head < samples_->gqa_group; ++head) {
    const float* query = samples_->query(index_, head);
    scratch.first.push_back(query[dims.first]);
    scratch.second.push_back(dims.single() ? 0.0f : query[dims.second]);
  }
  scratch.tops.resize(static_cast<size_t>(samples_->gqa_group));
  const ScoreRows& begun = rows.empty() ? alibi_ : rows;
  bodies_->score({.heads = samples_->gqa_group,
                  .tokens = tokens(),
                  .stride = stride(),
                  .base = begun.empty() ? nullptr : begun.data(),
                  .first_keys = samples_->key_plane(dims.first) + first_,
                  .second_keys = samples_->key_plane(dims.second) + first_,
                  .first = scratch.first.data(),
                  .second = scratch.second.data(),
                  .scores = out,
                  .best = scratch.tops.data()});
}

void CalibrationQuery::add_chunk(int chunk, ScoreRows& rows, QueryScratch& scratch) const {
  if (rows.empty()) rows = alibi_;
  rows.resize(row_floats());
  score(rows, chunk, rows.data(), scratch);
}

void CalibrationQuery::combine(const ScoreRows& rows, int chunk, QueryScratch& scratch) const {
  const float* scores = rows.data();
  const float cap = samples_->score_cap;
  if (chunk >= 0 || cap > 0) scratch.scores.resize(row_floats());
  if (chunk >= 0) {
    score(rows, chunk, scratch.scores.data(), scratch);
    scores = scratch.scores.data();
  }
  if (cap > 0) {
    bodies_->soft_cap(scores, std::ssize(scratch.scores), cap, scratch.scores.data());
    scores = scratch.scores.data();
  }
  if (chunk < 0 || cap > 0) {
    scratch.tops.clear();
    for (int head = 0; head < samples_->gqa_group; ++head) {
      scratch.tops.push_back(bodies_->best(scores + head * stride(), tokens()));
    }
  }
  scratch.deficits.resize(attention_.size());
  bodies_->fold(scores, stride(), scratch.tops.data(), samples_->gqa_group, tokens(),
                scratch.deficits.data());
}

// Protected tokens are ranked last rather than removed, which keeps the rows aligned.
double CalibrationQuery::captured_distant(const ScoreRows& rows, int chunk,
                                          QueryScratch& scratch) const {
  combine(rows, chunk, scratch);
  const auto begin = scratch.deficits.begin();
  std::fill(begin, begin + distant_first_, kGiven);
  std::fill(begin + distant_end_, scratch.deficits.end(), kGiven);
  const int64_t distant = distant_end_ - distant_first_;
  scratch.selector.select(scratch.deficits, std::min(rule_.window - (tokens() - distant), distant));
  return scratch.selector.sum(attention_);
}

std::vector<double> CalibrationQuery::agreement(const ScoreRows& truth,
                                                QueryScratch& scratch) const {
  const auto chunks = samples_->chunks.size();
  const auto group = static_cast<size_t>(samples_->gqa_group);
  const int64_t k = std::min<int64_t>(rule_.window, tokens());
  std::vector<AlignedVector<float>> best;  // per head: 1 for its best tokens
  std::vector<uint8_t> marks(attention_.size());
  scratch.deficits.resize(attention_.size());
  const auto select = [&](const float* row, float top) {
    bodies_->fold(row, stride(), &top, 1, tokens(), scratch.deficits.data());
    scratch.selector.select(scratch.deficits, k);
  };
  for (int head = 0; head < samples_->gqa_group; ++head) {
    const float* row = truth.data() + head * stride();
    select(row, bodies_->best(row, tokens()));
    scratch.selector.mark(marks);
    best.emplace_back(marks.begin(), marks.end());
  }
  std::vector<double> result(group * chunks);
  scratch.scores.resize(row_floats());
  for (size_t chunk = 0; chunk < chunks; ++chunk) {
    score({}, static_cast<int>(chunk), scratch.scores.data(), scratch);
    for (size_t head = 0; head < group; ++head) {
      select(scratch.scores.data() + static_cast<int64_t>(head) * stride(), scratch.tops[head]);
      result[head * chunks + chunk] = scratch.selector.sum(best[head]) / static_cast<double>(k);
    }
  }
  return result;
}

}  // namespace fasa
