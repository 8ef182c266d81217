#include "scheduler/prefetch/prefetch_control.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <limits>
#include <utility>

#include "runtime/base/error.h"
#include "scheduler/prefetch/predictor_table.h"

namespace fasa {
namespace {

// Maximum depth chosen automatically: deeper predictions are poor, and each depth needs memory for
// a set.
constexpr int kMaxAutomatic = 4;
constexpr int kRunnersUpDepth = 1;      // time enough for rows known since the last step
constexpr int kFirstMeasurements = 16;  // steps that are all measured at first
constexpr int kMeasureEvery = 8;        // afterwards, one step in this many, while times decide
constexpr int kCountEvery = 4;          // the same while hot rows fill and counts decide
constexpr int kFillMeasurements = 32;   // that take until hot rows are full
constexpr int kMeasureFullEvery = 64;   // the same afterwards, and if no depth is chosen
constexpr double kSmoothing = 0.25;
constexpr double kCountSmoothing = 0.5;  // counts of rows vary little from step to step
constexpr double kOtherMisses = 1.5;     // a factor between misses that are not comparable
constexpr int kTrialSteps = 4;           // the first only lists runners-up
constexpr int kMaxPause = 1024;          // steps between trials of runners-up that do not pay

int max_depth_of(const StepSettings& settings, int hot_rows, bool writes_sets, int max_depth) {
  if (!settings.prefetches(hot_rows)) return 0;
  if (!writes_sets && settings.selection != nullptr) return 0;  // only the kernel lists runners-up
  const int automatic = writes_sets ? kMaxAutomatic : kRunnersUpDepth;
  return std::max(0, std::min({settings.prefetch.depth.value_or(automatic), max_depth,
                               settings.layer_count() - 1}));
}

// Rounds down to three significant bits: at most a fifth less.
int32_t coarse(int32_t rows) {
  const int bits = std::bit_width(static_cast<uint32_t>(rows));
  return bits <= 3 ? rows : rows >> (bits - 3) << (bits - 3);
}

}  // namespace

PrefetchControl::PrefetchControl(Device& device, const StepSettings& settings)
    : device_(device), settings_(settings), hot_rows_(settings.max_hot_rows) {
  choose();
}

void PrefetchControl::set_query_source(QuerySource* source) {
  source_ = source;
  choose();
}

void PrefetchControl::set_predictor(Predictor* predictor) {
  custom_ = predictor;
  choose();
}

void PrefetchControl::set_hot_rows(int hot_rows) {
  hot_rows_ = hot_rows;
  choose();
}

void PrefetchControl::require_query_source() const {
  if (!settings_.prefetches(hot_rows_) || custom_ != nullptr || source_ != nullptr) return;
  if (!needs_queries(settings_.prefetch.predictor)) return;
  throw UsageError(
      fmt::format("prefetch.predictor = {}: no query source is set; call set_query_source, "
                  "or use auto or runners-up",
                  predictor_name(settings_.prefetch.predictor)));
}

void PrefetchControl::choose() {
  own_ = make_predictor(settings_.prefetch.predictor, {device_, source_, settings_.layer_count()});
  max_depth_ =
      max_depth_of(settings_, hot_rows_, predictor().writes_sets(), predictor().max_depth());
  depth_ = DepthController(max_depth_);
  counts_ = {};
}

PredictionScratch PrefetchControl::scratch_for(const StepSettings& settings, int source_depth) {
  const PredictionScratch most =
      predictor_scratch(settings.prefetch.predictor, settings.layer_count(), source_depth);
  return {max_depth_of(settings, settings.max_hot_rows, most.writes_sets, most.max_depth),
          most.writes_sets};
}

PrefetchPlan PrefetchControl::plan(int sequences, bool listed) const {
  PrefetchPlan plan;
  if (max_depth_ == 0) return plan;
  plan.runners_up = !predictor().writes_sets();
  plan.trial = trial_steps_ > 0;
  plan.counts = counts_;
  plan.layer_seconds = compute_seconds_;
  // Whether runners-up pay is decided by their counts (step_plan.cc).
  const bool fixed = settings_.prefetch.depth || plan.runners_up;
  const bool lists_only = plan.runners_up && !listed;
  plan.depth = lists_only ? 0 : fixed ? max_depth_ : depth_.depth();
  const CacheLayout& layout = settings_.layout;
  plan.rows = PrefetchPlanner::rows_per_head(link_rate_, compute_seconds_, layout.row.bytes(),
                                             int64_t{sequences} * layout.kv_heads,
                                             std::numeric_limits<int32_t>::max());
  if (coarse_) plan.rows = coarse(plan.rows);
  return plan;
}

bool PrefetchControl::measures(int32_t step_number) const {
  if (max_depth_ == 0) return false;
  const bool chooses = !settings_.prefetch.depth;
  const bool by_times = chooses && predictor().writes_sets();
  const bool counts = chooses && lists_ahead_ && counts_.coverage < 0;
  const bool unsettled = (by_times && !depth_.settled()) || trial_steps_ > 0 || counts;
  if (unsettled || measurements_ < kFirstMeasurements) return true;
  // Measured steps cannot be recorded as graphs.
  const bool fills = chooses && measurements_ < kFillMeasurements;
  const int every = by_times ? kMeasureEvery : fills ? kCountEvery : kMeasureFullEvery;
  return step_number % every == 0;
}

// Layers are measured in turn; the first is never predicted.
int PrefetchControl::measured_layer() const {
  const int predicted = settings_.layer_count() - 1;
  for (int i = 0; i < predicted; ++i) {
    const int layer = 1 + (measurements_ + i) % predicted;
    if (!settings_.layer(layer).dense) return layer;
  }
  return 0;
}

void PrefetchControl::planned(const PrefetchPlan& plan) {
  lists_ahead_ = plan.runners_up && plan.on();
  if (trial_steps_ > 0) {
    --trial_steps_;
    until_trial_ = pause_;
  } else if (plan.on()) {
    until_trial_ = pause_ = kFirstTrial;
  } else if (--until_trial_ == 0) {
    trial_steps_ = kTrialSteps;
    pause_ = std::min(2 * pause_, kMaxPause);
  }
}

void PrefetchControl::count(const StepCounters& rows) {
  const auto since = [&](uint64_t StepCounters::*part) {
    return static_cast<double>(rows.*part - rows_.*part);
  };
  const double used = since(&StepCounters::prefetched_used);
  const double ahead = since(&StepCounters::prefetched);
  const double missing = since(&StepCounters::misses) + used;
  const double entries =
      missing - used + since(&StepCounters::protected_rows) + since(&StepCounters::hits);
  rows_ = rows;
  if (entries <= 0) return;
  const auto smooth = [](double& mean, double value) {
    mean = mean < 0 ? value : mean + kCountSmoothing * (value - mean);
  };
  smooth(counts_.missing, missing / entries);
  if (ahead <= 0 || missing <= 0) {
    // What was fetched ahead while hot rows filled says little about full ones: it is tried again.
    if (counts_.missing * kOtherMisses < counted_at_) counts_.coverage = counts_.ahead = -1;
    counts_ahead_ = false;
    return;
  }
  // Rows that were fetched ahead are used over several steps: the first count is too low.
  if (!std::exchange(counts_ahead_, true)) return;
  counted_at_ = counts_.missing;
  smooth(counts_.coverage, used / missing);
  smooth(counts_.ahead, ahead / entries);
}

void PrefetchControl::measured(int depth, const LayerTimes& times, const TransferTotals& transfers,
                               const StepCounters& rows) {
  if (!(times.step > 0)) return;
  count(rows);
  const double weight = measurements_++ == 0 ? 1 : kSmoothing;
  compute_seconds_ += weight * (times.compute - compute_seconds_);
  const double seconds = transfers.h2d_seconds - link_seconds_;
  if (transfers.h2d_bytes > link_bytes_ && seconds > 0) {
    link_rate_ = static_cast<double>(transfers.h2d_bytes - link_bytes_) / seconds;
  }
  link_bytes_ = transfers.h2d_bytes;
  link_seconds_ = transfers.h2d_seconds;
  depth_.measured(depth, times);
}

}  // namespace fasa
