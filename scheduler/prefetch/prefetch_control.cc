#include "scheduler/prefetch/prefetch_control.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <utility>

namespace fasa {
namespace {

constexpr int kAutomaticDepth = 1;      // time enough for rows known since the last step
constexpr int kFirstMeasurements = 16;  // steps that are all measured at first
constexpr int kCountEvery = 4;          // afterwards, one step in this many, while hot rows fill
constexpr int kFillMeasurements = 32;   // that take until hot rows are full
constexpr int kMeasureFullEvery = 64;   // the same afterwards, and if no depth is chosen
constexpr double kSmoothing = 0.25;
constexpr double kCountSmoothing = 0.5;  // counts of rows vary little from step to step
constexpr double kOtherMisses = 1.5;     // a factor between misses that are not comparable
constexpr int kTrialSteps = 4;           // the first only lists runners-up
constexpr int kMaxPause = 1024;          // steps between trials of runners-up that do not pay

int max_depth_of(const StepSettings& settings, int hot_rows, const Predictor* custom) {
  if (!settings.prefetches(hot_rows)) return 0;
  if (custom == nullptr && settings.selection != nullptr) return 0;  // the kernel lists runners-up
  const int layers = settings.layer_count() - 1;
  const int most = custom == nullptr ? layers : std::min(layers, custom->max_depth());
  return std::max(0, std::min(settings.prefetch.depth.value_or(kAutomaticDepth), most));
}

// Rounds down to three significant bits: at most a fifth less.
int32_t coarse(int32_t rows) {
  const int bits = std::bit_width(static_cast<uint32_t>(rows));
  return bits <= 3 ? rows : rows >> (bits - 3) << (bits - 3);
}

}  // namespace

PrefetchControl::PrefetchControl(const StepSettings& settings)
    : settings_(settings), hot_rows_(settings.max_hot_rows) {
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

void PrefetchControl::choose() {
  max_depth_ = max_depth_of(settings_, hot_rows_, custom_);
  counts_ = {};
}

PredictionScratch PrefetchControl::scratch_for(const StepSettings& settings) {
  return {max_depth_of(settings, settings.max_hot_rows, nullptr), false};
}

PrefetchPlan PrefetchControl::plan(int sequences, bool listed) const {
  PrefetchPlan plan;
  if (max_depth_ == 0) return plan;
  plan.runners_up = custom_ == nullptr;
  plan.trial = trial_steps_ > 0;
  plan.counts = counts_;
  plan.layer_seconds = compute_seconds_;
  // Whether runners-up pay is decided by their counts (step_plan.cc).
  plan.depth = plan.runners_up && !listed ? 0 : max_depth_;
  const CacheLayout& layout = settings_.layout;
  plan.rows = PrefetchPlanner::rows_per_head(link_rate_, compute_seconds_, layout.row.bytes(),
                                             int64_t{sequences} * layout.kv_heads,
                                             std::numeric_limits<int32_t>::max());
  if (coarse_) plan.rows = coarse(plan.rows);
  return plan;
}

bool PrefetchControl::measures(int64_t step) const {
  if (max_depth_ == 0) return false;
  const bool chooses = !settings_.prefetch.depth;
  const bool counts = chooses && lists_ahead_ && counts_.coverage < 0;
  if (trial_steps_ > 0 || counts || measurements_ < kFirstMeasurements) return true;
  // Measured steps cannot be recorded as graphs.
  const bool fills = chooses && measurements_ < kFillMeasurements;
  return step % (fills ? kCountEvery : kMeasureFullEvery) == 0;
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

void PrefetchControl::measured(const LayerTimes& times, const TransferTotals& transfers,
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
}

}  // namespace fasa
