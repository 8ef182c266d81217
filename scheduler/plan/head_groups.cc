#include "scheduler/plan/head_groups.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/kernel_work.h"
#include "scheduler/plan/low_bit_work.h"

namespace fasa {
namespace {

// Number of candidate ends of a group.
constexpr int kPlaces = 16;

class Search {
 public:
  Search(const GroupTimes& times, int kv_heads, int wanted)
      : times_(times),
        kv_heads_(kv_heads),
        wanted_(std::min(wanted, kv_heads)),
        stride_((kv_heads + kPlaces - 1) / kPlaces) {}

  HeadGroups best() {
    extend(HeadGroups::none(), 0);
    return best_;
  }

 private:
  void extend(const HeadGroups& groups, int end) {
    const int count = groups.count() + 1;
    if (wanted_ == 0 || count == wanted_) {
      HeadGroups whole = groups;
      whole.add(kv_heads_);
      for (const bool codes_first : {false, true}) {
        if (codes_first && times_.codes <= 0) break;
        whole.set_codes_first(codes_first);
        const double cost = times_.cost(whole);
        if (cost < min_) min_ = cost, best_ = whole;
      }
    }
    if (count == (wanted_ > 0 ? wanted_ : HeadGroups::kMax)) return;
    // Ends near the previous end are likely: tries all of them, and a sample of the others.
    for (int next = end + 1; next < kv_heads_; ++next) {
      const int left = kv_heads_ - next;
      if (left > kPlaces / 2 && left % stride_ != 0) continue;
      HeadGroups more = groups;
      more.add(next);
      extend(more, next);
    }
  }

  const GroupTimes& times_;
  const int kv_heads_;
  const int wanted_;
  const int stride_;
  double min_ = std::numeric_limits<double>::infinity();
  HeadGroups best_;
};

// The share of misses with hot rows of one set; n sets have an n-th of it.
constexpr double kMissesOfOneSet = 0.41;

// Rows fetched ahead for each missing one with hot rows of one set; n sets have an n-th of it.
constexpr double kAheadOfOneSet = 36;

// The share of layers, with sets of 320 on the trace, that still miss a row where runners-up are
// fetched ahead, and wait for the link's latency.
constexpr double kLayersThatMiss = 0.85;

// By counts (there is a period) nearly all, while hot rows fill.
double layers_that_miss(const GroupLoad& load, int32_t set, int kv_heads) {
  if (load.runners_up == 0) return 1;
  if (load.period <= 0) return kLayersThatMiss;
  const double misses = load.sequences * load.miss_share * set * kv_heads;
  return std::max(kLayersThatMiss, 1 - std::exp(-misses / 20));
}

// Hot rows in sets of the layer.
double hot_sets(const StepSettings& settings, int layer, int32_t visible, int hot_rows) {
  return static_cast<double>(hot_rows) /
         static_cast<double>(settings.selected_tokens(layer, visible));
}

}  // namespace

double GroupTimes::span(const HeadGroups& groups) const {
  std::array<double, HeadGroups::kMax> arrived{};
  std::array<double, HeadGroups::kMax> stream_free{};
  double compute = 0;
  double link_free = link_busy(groups);
  const double ahead_arrives = link_free;
  for (int g = 0; g < groups.count(); ++g) {
    const double heads = groups[g].end - groups[g].begin;
    compute += select_call + heads * score;
    double& stream = stream_free[static_cast<size_t>(g % std::clamp(streams, 1, HeadGroups::kMax))];
    double ready = std::max(compute, stream) + fetch_call + heads * resolve;
    if (transfer > 0) {
      link_free = std::max(link_free, ready) + heads * transfer;
      ready = link_free + latency;
    }
    arrived[static_cast<size_t>(g)] = stream = ready;
  }
  const double first = groups.codes_first() ? codes : 0;
  if (groups.codes_first()) compute += launch + groups[groups.count() - 1].end * codes;
  for (int g = 0; g < groups.count(); ++g) {
    const double heads = groups[g].end - groups[g].begin;
    if (g + 1 == groups.count()) compute += meanwhile;
    if (g == 0) compute = std::max(compute, ahead_arrives);
    compute =
        std::max(compute, arrived[static_cast<size_t>(g)]) + attend_call + heads * (attend - first);
  }
  return compute;
}

// The rows are asked for in the layer before, when all its heads are scored and its last group is
// about to be attended to.
double GroupTimes::link_busy(const HeadGroups& groups) const {
  if (ahead <= 0 || period <= 0) return 0;
  const int last = groups.count() - 1;
  const double before = groups.count() * select_call + groups[last].end * score +
                        (groups.codes_first() ? launch + groups[last].end * codes : 0) +
                        last * attend_call + groups[last].begin * (attend - codes);
  return std::max(0.0, ahead - std::max(0.0, period - before));
}

// A layer takes at least as long as its transfers. What its own waits leave of that adds up over
// layers.
double GroupTimes::overload(const HeadGroups& groups) const {
  if (ahead <= 0 || period <= 0) return 0;
  const double heads = groups[groups.count() - 1].end;
  const double own = groups.count() * (select_call + attend_call) + heads * (score + attend) +
                     meanwhile + (groups.codes_first() ? launch : 0);
  return std::max(0.0, ahead_moves + heads * transfer - period - (span(groups) - own));
}

double GroupTimes::cost(const HeadGroups& groups) const {
  return span(groups) + overload(groups) +
         (groups.count() + (groups.codes_first() ? 0.5 : 0)) * launch / 4;
}

GroupTimes group_times(const StepSettings& settings, int layer, const GroupLoad& load) {
  const CacheLayout& layout = settings.layout;
  const DeviceRates& rates = settings.rates;
  const auto sequences = static_cast<double>(load.sequences);
  const auto visible = static_cast<int32_t>(load.scored / std::max(1, load.sequences));
  const int32_t set = settings.selected_tokens(layer, visible);
  GroupTimes times;
  times.launch = rates.kernels.launch;
  times.select_call =
      rates.kernels.select_seconds(set, settings.low_bit_tokens(layer, visible), load.runners_up);
  times.fetch_call = rates.kernels.resolve_seconds(load.hot_rows);
  times.attend_call = rates.kernels.attend;
  times.latency = rates.link_latency * layers_that_miss(load, set, layout.kv_heads);
  times.streams = settings.copy_streams;
  const LowBitWork low_bit = low_bit_work(settings, layer, visible);
  times.score = sequences *
                rates.scored(select_bytes(layout.slice, 0, std::max(1, visible)) + low_bit.select);
  times.resolve = sequences * rates.moved(resolve_bytes(1, set, load.hot_rows));
  times.attend = sequences * rates.attended(rows_bytes(layout, set) + low_bit.attend);
  times.codes = sequences * rates.attended(low_bit.attend);
  times.transfer = sequences * load.miss_share * static_cast<double>(rows_bytes(layout, set)) /
                   rates.link_bandwidth;
  times.period = load.period;
  if (load.ahead > 0) {
    times.ahead_moves = sequences * load.ahead * static_cast<double>(rows_bytes(layout, set)) *
                        layout.kv_heads / rates.link_bandwidth;
    times.ahead = times.fetch_call + rates.link_latency + times.ahead_moves;
  }
  return times;
}

HeadGroups choose_groups(const GroupTimes& times, int kv_heads, int wanted) {
  return Search(times, kv_heads, wanted).best();
}

double likely_miss_share(const StepSettings& settings, int layer, int32_t visible, int hot_rows) {
  if (hot_rows >= visible) return 0;
  const double sets = hot_sets(settings, layer, visible, hot_rows);
  return sets > 0 ? std::min(1.0, kMissesOfOneSet / sets) : 1.0;
}

// n sets of s rows cost n * s * (a slot) + misses / n * s * (a row of all heads): least where both
// terms are equal.
int worthwhile_sets(const StepSettings& settings) {
  constexpr double kMost = 16;
  const CacheLayout& layout = settings.layout;
  const double rows = kMissesOfOneSet * static_cast<double>(rows_bytes(layout, layout.kv_heads)) /
                      settings.rates.link_bandwidth;
  const double slot = settings.rates.kernels.hot_slot;
  if (rows >= kMost * kMost * slot) return static_cast<int>(kMost);
  return std::max(2, static_cast<int>(std::lround(std::sqrt(rows / slot))));
}

double likely_coverage(const StepSettings& settings, int layer, int32_t visible, int hot_rows) {
  const double sets = hot_sets(settings, layer, visible, hot_rows);
  return sets < 8 ? 0 : std::min(0.6, 0.04 * sets);
}

double likely_ahead(const StepSettings& settings, int layer, int32_t visible, int hot_rows) {
  return kAheadOfOneSet / std::max(1.0, hot_sets(settings, layer, visible, hot_rows));
}

double layer_seconds(const StepSettings& settings, int layer, const GroupLoad& load,
                     const HeadGroups& groups) {
  return group_times(settings, layer, load).cost(groups);
}

HeadGroups plan_groups(const StepSettings& settings, int layer, const GroupLoad& load) {
  const int kv_heads = settings.layout.kv_heads;
  if (load.sequences == 0 && settings.head_groups == 0) return HeadGroups(kv_heads);
  return choose_groups(group_times(settings, layer, load), kv_heads, settings.head_groups);
}

}  // namespace fasa
