#include "runtime/plan/cost_model.h"

#include <algorithm>
#include <cmath>

#include "kernels/kernel_work.h"
#include "kernels/select_plan.h"
#include "scheduler/plan/low_bit_work.h"

namespace fasa {

// Rows that one layer moves, on average.
struct CostModel::Fetch {
  double missing = 0;     // entries not on the device, all KV heads
  double demanded = 0;    // of them, fetched on demand
  double prefetched = 0;  // fetched ahead, used or not
  double any_demand = 0;  // probability that something is demanded
  double ready = 0;       // share of the tiles that need no transfer
};

double CostTerms::hidden() const {
  if (transfer <= 0) return 1;
  return std::clamp(1 - wait / transfer, 0.0, 1.0);
}

CostTerms& CostTerms::operator+=(const CostTerms& other) {
  append += other.append;
  scoring += other.scoring;
  resolve += other.resolve;
  attention += other.attention;
  prediction += other.prediction;
  weights += other.weights;
  launches += other.launches;
  wait += other.wait;
  setup += other.setup;
  transfer += other.transfer;
  used_bytes += other.used_bytes;
  wasted_bytes += other.wasted_bytes;
  return *this;
}

CostModel::CostModel(const StepSettings& settings, const MachineRates& machine, int64_t context)
    : settings_(settings),
      machine_(machine),
      access_(settings.access_of(context, settings.max_hot_rows)),
      capacities_(
          capacities_for(settings,
                         {.context = context, .access = access_, .hot_rows = settings.max_hot_rows})
              .decode) {}

int64_t CostModel::selected_size(int layer, int64_t tokens) const {
  const int32_t seen = visible(layer, tokens);
  return settings_.layer(layer).dense ? seen : settings_.selected_tokens(layer, seen);
}

double CostModel::hit_rate(double overlap, int64_t tokens) const {
  if (access_ == RowAccess::kLocal) return 1;
  double found = 0;
  double all = 0;
  for (int layer = 0; layer < settings_.layer_count(); ++layer) {
    if (settings_.layer(layer).dense) continue;
    const auto set = static_cast<double>(selected_size(layer, tokens));
    const double protected_tokens = std::min<double>(set, settings_.layout.protected_tokens());
    const double competing = set - protected_tokens;
    const auto hot = static_cast<double>(settings_.max_hot_rows);
    // A context that fits is fetched once and stays on the device.
    const double kept = hot >= static_cast<double>(tokens) ? 1 : overlap;
    found += protected_tokens + std::min(hot, kept * competing);
    all += set;
  }
  return all > 0 ? found / all : 1;
}

void CostModel::add_append(int layer, CostTerms& terms) const {
  const CacheLayout& layout = settings_.layout_of(layer);
  // Every kPageTokens-th token seals a page: charges each step its share of that.
  const uint64_t bytes = append_bytes(layout, 1) + seal_bytes(layout) / kPageTokens;
  terms.append += machine_.moved(static_cast<uint64_t>(layout.kv_heads) * bytes);
  terms.launches += machine_.kernels.launch;
}

void CostModel::add_all_in_place(const LayerPlan& plan, int layer, const StepLoad& load,
                                 CostTerms& terms) const {
  const CacheLayout& layout = settings_.layout_of(layer);
  const int32_t seen = visible(layer, load.tokens);
  terms.attention += machine_.attended(rows_bytes(layout, int64_t{seen} * layout.kv_heads) +
                                       output_bytes(layout, layout.query_heads(), load.out));
  terms.launches += plan.waves * machine_.kernels.attend;
}

// Pages are copied one at a time through two buffers: attention reads one while the other fills, so
// the slower of copy and attention bounds the step.
void CostModel::add_all_streamed(int layer, const StepLoad& load, CostTerms& terms) const {
  const CacheLayout& layout = settings_.layout;
  const int32_t seen = visible(layer, load.tokens);
  const int64_t wave = std::max(1, capacities_.dense_wave(settings_));
  const int64_t waves = (seen + wave - 1) / wave;
  const auto pages = static_cast<double>(pages_of(seen));
  const auto page_bytes = static_cast<double>(layout.row_layer_bytes());
  const double transfer = pages * (link(page_bytes) + machine_.link_latency);
  const double attention = machine_.attended(rows_bytes(layout, int64_t{seen} * layout.kv_heads) +
                                             output_bytes(layout, layout.query_heads(), load.out));
  const double launches = static_cast<double>(waves) * machine_.kernels.attend;
  // The newest row must be written to the host before its page is read back.
  const double written = machine_.kernels.launch + machine_.link_latency +
                         link(static_cast<double>(rows_bytes(layout, layout.kv_heads)));
  const double first = transfer / static_cast<double>(std::max<int64_t>(1, waves));
  const double compute = attention + launches;
  const double span = std::max(written + transfer + compute / static_cast<double>(waves),
                               written + first + compute);
  terms.attention += attention;
  terms.launches += launches;
  terms.wait += span - compute;
  terms.transfer += transfer;
  terms.used_bytes += static_cast<uint64_t>(pages * page_bytes);
}

// Listed by a select for the next step.
int CostModel::runners_up(const std::optional<PrefetchLoad>& prefetch, int64_t set) const {
  if (!prefetch || prefetch->predict_bytes > 0) return 0;
  return max_runners_up(settings_.max_hot_rows, static_cast<int>(set));
}

// A projection and a select.
double CostModel::predict_calls(const PrefetchLoad& prefetch, int64_t set) const {
  if (prefetch.predict_bytes == 0) return 0;
  return machine_.kernels.launch + machine_.kernels.select_seconds(set, 0, 0);
}

CostModel::Fetch CostModel::fetch_of(int64_t set, double hit_rate,
                                     const std::optional<PrefetchLoad>& prefetch) const {
  const CacheLayout& layout = settings_.layout;
  const auto entries = static_cast<double>(set * layout.kv_heads);
  const double protected_tokens =
      std::min<double>(static_cast<double>(set), layout.protected_tokens()) *
      static_cast<double>(layout.kv_heads);
  Fetch fetch;
  fetch.missing = std::clamp((1 - hit_rate) * entries, 0.0, entries - protected_tokens);
  const double coverage = prefetch ? std::clamp(prefetch->coverage, 0.0, 1.0) : 0;
  fetch.demanded = fetch.missing * (1 - coverage);
  if (prefetch) fetch.prefetched = fetch.missing * coverage * std::max(1.0, prefetch->overfetch);
  // The model assumes that entries miss independently of each other.
  const double present =
      entries > protected_tokens ? 1 - fetch.demanded / (entries - protected_tokens) : 1;
  const double there =
      entries > protected_tokens ? 1 - fetch.missing / (entries - protected_tokens) : 1;
  fetch.any_demand = 1 - std::pow(present, entries - protected_tokens);
  fetch.ready = std::pow(there, kTileTokens);
  return fetch;
}

// Transfers that both ways of processing a set have in common.
void CostModel::add_fetched(const Fetch& fetch, double rounds, CostTerms& terms) const {
  const auto row_bytes = static_cast<double>(settings_.layout.row.bytes());
  // A layer takes at least as long as its transfers, in any order.
  const double busy = link((fetch.demanded + fetch.prefetched) * row_bytes);
  terms.wait += std::max(0.0, busy - terms.total());
  if (fetch.missing > 0) {
    terms.transfer += link(fetch.missing * row_bytes) + rounds * machine_.link_latency;
  }
  terms.used_bytes += static_cast<uint64_t>(fetch.missing * row_bytes);
  const double used_prefetches = fetch.missing - fetch.demanded;
  terms.wasted_bytes +=
      static_cast<uint64_t>(std::max(0.0, fetch.prefetched - used_prefetches) * row_bytes);
}

void CostModel::add_groups(const HeadGroups& groups, int layer, const StepLoad& load,
                           const std::optional<PrefetchLoad>& prefetch, CostTerms& terms) const {
  const CacheLayout& layout = settings_.layout;
  const int32_t seen = visible(layer, load.tokens);
  const int64_t set = selected_size(layer, load.tokens);
  const bool scored = set < seen;
  const Fetch fetch = fetch_of(set, load.hit_rate, prefetch);
  const double heads = layout.kv_heads;
  GroupTimes times = group_times(settings_, layer,
                                 {.sequences = 1,
                                  .scored = seen,
                                  .hot_rows = settings_.max_hot_rows,
                                  .runners_up = runners_up(prefetch, set)});
  if (!scored) times.score = 0;  // its select is called all the same
  times.transfer = link(fetch.demanded * static_cast<double>(layout.row.bytes())) / heads;
  times.latency = fetch.any_demand * machine_.link_latency;
  if (prefetch) {
    times.meanwhile = machine_.moved(prefetch->predict_bytes) + predict_calls(*prefetch, set);
    terms.prediction += machine_.moved(prefetch->predict_bytes);
    terms.launches += predict_calls(*prefetch, set);
  }
  // Select and attend of each group; the codes that come first.
  const double launches = groups.count() * (times.select_call + times.attend_call) +
                          (groups.codes_first() ? times.launch : 0);
  const double compute = launches + heads * (times.score + times.attend) + times.meanwhile;
  terms.scoring += heads * times.score;
  terms.attention += heads * times.attend +
                     machine_.attended(output_bytes(layout, layout.query_heads(), load.out));
  terms.launches += launches;
  terms.wait += std::max(0.0, times.span(groups) - compute);
  add_fetched(fetch, 1, terms);
}

void CostModel::add_selected(const LayerPlan& plan, int layer, const StepLoad& load,
                             const std::optional<PrefetchLoad>& prefetch, CostTerms& terms) const {
  const CacheLayout& layout = settings_.layout;
  const KernelCosts& calls = machine_.kernels;
  const int32_t seen = visible(layer, load.tokens);
  const int64_t set = selected_size(layer, load.tokens);
  const double waves = std::max(1, plan.waves);
  const auto kv_heads = static_cast<uint64_t>(layout.kv_heads);

  const LowBitWork codes = low_bit_work(settings_, layer, seen);
  if (set < seen) {
    terms.scoring += machine_.scored(
        kv_heads * (select_bytes(layout.slice, load.tokens - seen, load.tokens) + codes.select));
  }
  terms.resolve += waves * machine_.moved(resolve_bytes(layout.kv_heads, capacities_.wave(),
                                                        settings_.max_hot_rows));
  const bool over_link = plan.decode == DecodePath::kSelectedInWaves;
  const double resolve = over_link ? calls.resolve_seconds(settings_.max_hot_rows) : calls.launch;
  terms.launches +=
      calls.select_seconds(set, settings_.low_bit_tokens(layer, seen), runners_up(prefetch, set)) +
      waves * (resolve + calls.attend);
  const double rows = machine_.attended(rows_bytes(layout, set * layout.kv_heads));
  const double low_bit = machine_.attended(kv_heads * codes.attend);
  terms.attention +=
      rows + low_bit + machine_.attended(output_bytes(layout, layout.query_heads(), load.out));
  if (!over_link) return;

  const Fetch fetch = fetch_of(set, load.hit_rate, prefetch);
  const auto row_bytes = static_cast<double>(layout.row.bytes());
  const double demand = waves * calls.launch + link(fetch.demanded * row_bytes) +
                        fetch.any_demand * waves * machine_.link_latency;
  // Compute time between requesting the rows and needing them.
  double meanwhile = 0;
  if (codes.attend > 0) {  // with the ready tiles of the last wave
    terms.launches += calls.launch;
    meanwhile = calls.launch + fetch.ready * rows / waves + low_bit;
  }
  if (prefetch) {
    terms.prediction += machine_.moved(prefetch->predict_bytes);
    terms.launches += predict_calls(*prefetch, set);
    meanwhile += machine_.moved(prefetch->predict_bytes) + predict_calls(*prefetch, set);
  }
  terms.wait += std::max(0.0, demand - meanwhile);
  add_fetched(fetch, waves, terms);
}

CostTerms CostModel::layer(int layer, const StepLoad& load,
                           const std::optional<PrefetchLoad>& prefetch) const {
  CostTerms terms;
  if (settings_.layer(layer).sharer == 0) add_append(layer, terms);
  const MemberLoad member{.end = static_cast<int32_t>(load.tokens),
                          .access = access_,
                          .hot_rows = settings_.max_hot_rows};
  const int ahead = prefetch ? 1 : 0;
  const LayerPlan plan =
      plan_layer(settings_, layer,
                 {.members = {&member, 1},
                  .held = capacities_,
                  .prefetch = {.depth = ahead, .rows = ahead, .runners_up = ahead > 0}});
  if (plan.decode == DecodePath::kAllInPlace) {
    add_all_in_place(plan, layer, load, terms);
  } else if (plan.decode == DecodePath::kAllStreamed) {
    add_all_streamed(layer, load, terms);
  } else if (plan.decode == DecodePath::kSelectedInGroups) {
    add_groups(plan.groups, layer, load, prefetch, terms);
  } else {
    add_selected(plan, layer, load, prefetch, terms);
  }
  return terms;
}

CostTerms CostModel::step(const StepLoad& load, const std::optional<PrefetchLoad>& prefetch,
                          const WeightLoad& weights) const {
  CostTerms terms;
  for (int i = 0; i < settings_.layer_count(); ++i) terms += layer(i, load, prefetch);
  const double layers = settings_.layer_count();
  if (weights.any()) {
    terms.weights =
        machine_.moved(weights.head_bytes) + layers * machine_.moved(weights.layer_bytes);
    if (weights.fetched_bytes > 0) {
      const auto fetched = static_cast<double>(weights.fetched_bytes);
      terms.weights += layers * (link(fetched) + machine_.link_latency);
    }
    terms.launches += (layers + 1) * machine_.kernels.launch;
  }
  if (machine_.unified) return terms;
  // The sequence's descriptor is sent first.
  const double tables = link(static_cast<double>(sizeof(SequenceDesc))) + machine_.link_latency;
  terms.setup = tables;
  if (weights.any()) {
    // Overlaps with the embedding and the first layer's projections.
    const double embedding =
        link(static_cast<double>(weights.hidden_bytes)) + machine_.link_latency;
    const double first = embedding + machine_.kernels.launch + machine_.moved(weights.layer_bytes);
    terms.setup = embedding + std::max(0.0, tables - first) +
                  link(static_cast<double>(weights.logit_bytes)) + machine_.link_latency;
  }
  return terms;
}

}  // namespace fasa
