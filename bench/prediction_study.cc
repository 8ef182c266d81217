// How well does a prediction of a later layer's query find the rows that this layer will need, on a
// model's real generation? The source of the defaults of prefetching (docs/results/prefetch.md).
//
//   prediction_study MODEL TEXT_FILE... [--steps N] [--fac-tokens N] [--tokens N] [--hot-sets N]
//   prediction_study --trace FILE        the running caches alone, on a selection trace's ranking
//
// Depth 0 is the layer's own query: the loss of scoring with few FCs alone. Prints Markdown tables.
// A text is cut to `--tokens` tokens (default 7400); then the model continues greedily.
// `--hot-sets`: capacity of the hot rows, in sets (default 2). Without an FC map, FCs are scored in
// natural order.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <span>

#include "bench/running_caches.h"
#include "bench/study_main.h"
#include "offload/open_device.h"
#include "runtime/capture/slice_index.h"
#include "runtime/llm/model.h"
#include "runtime/llm/model_tokenizer.h"
#include "runtime/llm/sampler.h"
#include "runtime/trace/selection_trace.h"

namespace fasa::bench {
namespace {

constexpr int kSinks = 4;
constexpr int kRecent = 16;
constexpr int kDepths = 3;
constexpr double kOverFetch[] = {1.0, 1.25, 1.5, 2.0};
// The last step's own selection with this many sets: its next best tokens.
constexpr int kRunnersUp = -1;
constexpr double kLastStepSets[] = {1.5, 2.0, 3.0, 4.0};
// Next-query over all FCs among the last step's best of four sets, at depth kCandidates + d.
constexpr int kCandidates = 10;
constexpr int kCandidateSets = 4;
constexpr int kWarmSteps = 16;  // fill the running caches

enum class Order { kMap, kNatural, kSlowFirst };

const char* order_name(Order order) {
  return order == Order::kMap ? "map" : order == Order::kNatural ? "natural" : "slow first";
}

struct Variant {
  Order order;
  int chunks;
};

// Counts of rows: `wanted` were needed and not on the device, `found` of these were predicted;
// `fetched` would have been prefetched, `right` of these were needed.
struct Score {
  int64_t wanted = 0, found = 0, fetched = 0, right = 0;
  void operator+=(const Score& other) {
    wanted += other.wanted;
    found += other.found;
    fetched += other.fetched;
    right += other.right;
  }
  double coverage() const { return wanted == 0 ? 1 : double(found) / double(wanted); }
  double accuracy() const { return fetched == 0 ? 1 : double(right) / double(fetched); }
};

// Hot rows of one head; the least recently used is evicted first.
class HotRows {
 public:
  explicit HotRows(size_t capacity) : capacity_(capacity) {}
  bool has(int32_t position) const { return last_uses_.contains(position); }
  void use(const std::vector<int32_t>& set, int step_number) {
    for (const int32_t position : set) last_uses_[position] = step_number;
    while (last_uses_.size() > capacity_) {
      auto oldest = last_uses_.begin();
      for (auto at = last_uses_.begin(); at != last_uses_.end(); ++at) {
        if (at->second < oldest->second) oldest = at;
      }
      last_uses_.erase(oldest);
    }
  }

 private:
  size_t capacity_;
  std::map<int32_t, int> last_uses_;
};

// Slice dimensions by descending frequency; dimensions without rotation come last.
std::vector<int16_t> slow_first_slice_dims(const Geometry& geometry) {
  std::vector<int16_t> dims;
  for (int head = 0; head < geometry.layers * geometry.kv_heads; ++head) {
    for (int chunk = geometry.chunks() - 1; chunk >= 0; --chunk) {
      const Geometry::Pair pair = geometry.chunk_dims(chunk);
      dims.push_back(static_cast<int16_t>(pair.first));
      dims.push_back(static_cast<int16_t>(pair.second));
    }
  }
  return dims;
}

struct Key {
  int depth;
  size_t variant;
  size_t over;
  int layer;  // the predicted one
  auto operator<=>(const Key&) const = default;
};

class Study final : public LayerObserver {
 public:
  Study(const Model& model, const std::optional<FcMap>& map, int budget, int64_t tokens,
        int hot_sets)
      : geometry_(model.config().geometry()), budget_(budget) {
    for (const int chunks : {4, 8, 16, geometry_.chunks()}) {
      for (const Order order : {Order::kMap, Order::kNatural, Order::kSlowFirst}) {
        if (order == Order::kMap && !map) continue;
        const Order best = map ? Order::kMap : Order::kNatural;
        if (order != best && chunks == geometry_.chunks()) continue;
        variants_.push_back({order, chunks});
        indexes_.emplace_back(geometry_,
                              SliceIndexShape{.row_dtype = model.config().row_dtype(),
                                              .slice_dtype = SliceDType::kInt2,
                                              .chunks = chunks,
                                              .sinks = kSinks,
                                              .recent = kRecent,
                                              .tokens = tokens,
                                              .largest_set = 16 * budget},
                              order == Order::kMap       ? map->slice_dims(geometry_.chunks())
                              : order == Order::kNatural ? all_slice_dims(geometry_)
                                                         : slow_first_slice_dims(geometry_));
      }
    }
    const auto heads = static_cast<size_t>(geometry_.layers * geometry_.kv_heads);
    last_.resize(heads);
    hot_.resize(heads, HotRows(static_cast<size_t>(hot_sets * budget)));
    ranking_.resize(heads);
    caches.resize(heads, RunningCaches(budget));
  }

  const std::vector<Variant>& variants() const { return variants_; }
  void start() { recording_ = true; }
  std::map<Key, Score> fresh;   // against rows that the previous step did not select
  std::map<Key, Score> missed;  // against rows that the hot rows do not hold
  std::map<int, std::pair<int64_t, int64_t>> overlap;  // layer -> tokens kept, tokens
  std::map<int, std::pair<int64_t, int64_t>> misses;   // layer -> rows missed, tokens
  std::vector<RunningCaches> caches;                   // by head

  void on_layer(int layer, ConstTensorView q, ConstTensorView k, ConstTensorView v,
                int64_t start_position) override {
    for (auto& index : indexes_) index.append(layer, k, v, start_position);
    position_ = start_position;
    if (!recording_) return;
    predict(layer, 0, q, position_);
    SliceIndex& exact = indexes_.back();  // all FCs
    exact.select(layer, q, position_, budget_);
    for (int head = 0; head < geometry_.kv_heads; ++head) {
      const auto truth = competing(exact.set(head));
      compare(layer, head, truth);
    }
    predictions_.erase(layer);
    rank(layer, q);
    for (size_t over = 0; over < std::size(kLastStepSets); ++over) {
      exact.select(layer, q, position_, static_cast<int32_t>(kLastStepSets[over] * budget_));
      for (int head = 0; head < geometry_.kv_heads; ++head) {
        predictions_[layer].push_back(
            {{kRunnersUp, variants_.size() - 1, over, layer}, head, competing(exact.set(head))});
      }
    }
  }

  void on_estimate(int layer, int ahead, ConstTensorView q) override {
    // The predicted layer has not seen this token yet.
    predict(layer + ahead, ahead, q, position_ - 1);
    predict_among_candidates(layer + ahead, ahead, q);
  }

 private:
  // The ranking up to four sets, in bands of an eighth of a set; feeds the running caches.
  void rank(int layer, ConstTensorView q) {
    SliceIndex& exact = indexes_.back();
    const auto heads = static_cast<size_t>(geometry_.kv_heads);
    std::vector<std::vector<int32_t>> sets(heads), rankings(heads);
    for (int eighths = 8; eighths <= 8 * kCandidateSets; ++eighths) {
      exact.select(layer, q, position_, eighths * budget_ / 8);
      for (size_t head = 0; head < heads; ++head) {
        std::vector<int32_t>& ranking = rankings[head];
        const std::set<int32_t> earlier(ranking.begin(), ranking.end());
        for (const int32_t position : competing(exact.set(static_cast<int>(head)))) {
          if (!earlier.contains(position)) ranking.push_back(position);
        }
        if (eighths == 8) sets[head] = ranking;
      }
    }
    for (size_t head = 0; head < heads; ++head) {
      const size_t index = static_cast<size_t>(layer) * heads + head;
      caches[index].step(sets[head], std::span(rankings[head]).subspan(sets[head].size()),
                         steps_ >= kWarmSteps);
      ranking_[index] = std::move(rankings[head]);
      std::ranges::sort(ranking_[index]);
    }
    if (layer == geometry_.layers - 1) ++steps_;
  }

  // The first selection, among growing ones, that holds enough of the last step's candidates.
  void predict_among_candidates(int target, int ahead, ConstTensorView q) {
    SliceIndex& all = indexes_.back();
    const auto heads = static_cast<size_t>(geometry_.kv_heads);
    std::vector<std::vector<int32_t>> chosen(heads * std::size(kOverFetch));
    for (int tokens = budget_ / 2; tokens < 16 * budget_; tokens += std::max(1, tokens / 16)) {
      all.select(target, q, position_ - 1, tokens);
      for (size_t head = 0; head < heads; ++head) {
        const auto& ranking = ranking_[static_cast<size_t>(target) * heads + head];
        const std::vector<int32_t> set = competing(all.set(static_cast<int>(head)));
        std::vector<int32_t> both;
        std::ranges::set_intersection(set, ranking, std::back_inserter(both));
        for (size_t over = 0; over < std::size(kOverFetch); ++over) {
          if (static_cast<double>(both.size()) <= kOverFetch[over] * budget_ - kSinks - kRecent) {
            chosen[head * std::size(kOverFetch) + over] = both;
          }
        }
      }
    }
    for (size_t head = 0; head < heads; ++head) {
      for (size_t over = 0; over < std::size(kOverFetch); ++over) {
        predictions_[target].push_back({{kCandidates + ahead, variants_.size() - 1, over, target},
                                        static_cast<int>(head),
                                        chosen[head * std::size(kOverFetch) + over]});
      }
    }
  }

  void predict(int target, int ahead, ConstTensorView q, int64_t position) {
    for (size_t variant = 0; variant < variants_.size(); ++variant) {
      for (size_t over = 0; over < std::size(kOverFetch); ++over) {
        indexes_[variant].select(target, q, position,
                                 static_cast<int32_t>(kOverFetch[over] * budget_));
        for (int head = 0; head < geometry_.kv_heads; ++head) {
          predictions_[target].push_back(
              {{ahead, variant, over, target}, head, competing(indexes_[variant].set(head))});
        }
      }
    }
  }

  struct PredictedSet {
    Key key;
    int head;
    std::vector<int32_t> set;
  };
  // The set without protected tokens.
  std::vector<int32_t> competing(std::span<const int32_t> set) const {
    std::vector<int32_t> result;
    for (const int32_t position : set) {
      if (position >= kSinks && position <= position_ - kRecent) result.push_back(position);
    }
    return result;
  }
  template <typename There>
  static Score score(const std::vector<int32_t>& prediction, const std::vector<int32_t>& truth,
                     const There& there) {
    Score score;
    for (const int32_t position : truth) {
      if (there(position)) continue;
      ++score.wanted;
      score.found += std::binary_search(prediction.begin(), prediction.end(), position);
    }
    for (const int32_t position : prediction) {
      if (there(position)) continue;
      ++score.fetched;
      score.right += std::binary_search(truth.begin(), truth.end(), position);
    }
    return score;
  }
  void compare(int layer, int head, const std::vector<int32_t>& truth) {
    const auto index = static_cast<size_t>(layer * geometry_.kv_heads + head);
    std::vector<int32_t>& last = last_[index];
    HotRows& hot = hot_[index];
    const auto was_last = [&](int32_t position) {
      return std::binary_search(last.begin(), last.end(), position);
    };
    const auto is_hot = [&](int32_t position) { return hot.has(position); };
    if (!last.empty()) {
      for (const PredictedSet& prediction : predictions_[layer]) {
        if (prediction.head != head) continue;
        fresh[prediction.key] += score(prediction.set, truth, was_last);
        missed[prediction.key] += score(prediction.set, truth, is_hot);
      }
      for (const int32_t position : truth) {
        overlap[layer].first += was_last(position);
        misses[layer].first += !is_hot(position);
      }
      overlap[layer].second += static_cast<int64_t>(truth.size());
      misses[layer].second += static_cast<int64_t>(truth.size());
    }
    hot.use(truth, step_number_++);
    last = truth;
  }

  Geometry geometry_;
  int budget_;
  std::vector<Variant> variants_;
  std::vector<SliceIndex> indexes_;
  std::vector<std::vector<int32_t>> last_;
  std::vector<HotRows> hot_;
  std::map<int, std::vector<PredictedSet>> predictions_;
  int64_t position_ = 0;
  int step_number_ = 0;
  int steps_ = 0;
  std::vector<std::vector<int32_t>> ranking_;  // by head: the last step's best, ascending
  bool recording_ = false;
};

std::string file_text(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

void generate(Model& model, Study& study, const std::vector<int32_t>& prompt, int budget,
              int steps) {
  Config config;
  config.selection.fac_tokens = {{.tokens = budget, .share = 0}};
  config.selection.low_bit_tokens = TokenCount{};
  const Geometry geometry = model.config().geometry();
  const auto total = static_cast<int64_t>(prompt.size()) + steps;
  Runtime runtime(model.device(), config, geometry, model.config().row_dtype(),
                  all_slice_dims(geometry), total);
  const SequenceId sequence = runtime.create();
  model.reserve_estimates(1, kDepths);
  Sampler sampler({});
  int32_t token = 0;
  for (size_t done = 0; done < prompt.size();) {
    const size_t count = std::min<size_t>(512, prompt.size() - done);
    const StepSequence step[] = {{sequence, static_cast<int>(count), StepMode::kPrefill}};
    token = sampler.next(
        model.step(runtime, std::span(prompt).subspan(done, count), step, {.observer = &study}));
    done += count;
  }
  study.start();
  const StepSequence step[] = {{sequence, 1, StepMode::kDecode}};
  for (int i = 0; i < steps; ++i) {
    token = sampler.next(
        model.step(runtime, {&token, 1}, step, {.observer = &study, .estimate_depth = kDepths}));
  }
}

void add(const std::map<Key, Score>& from, std::map<Key, Score>& to) {
  for (const auto& [key, score] : from) to[key] += score;
}
void add(const std::map<int, std::pair<int64_t, int64_t>>& from,
         std::map<int, std::pair<int64_t, int64_t>>& to) {
  for (const auto& [key, pair] : from) {
    to[key].first += pair.first;
    to[key].second += pair.second;
  }
}

Score over_layers(const std::map<Key, Score>& scores, int depth, size_t variant, size_t over) {
  Score sum;
  for (const auto& [key, score] : scores) {
    if (key.depth == depth && key.variant == variant && key.over == over) sum += score;
  }
  return sum;
}

void print_runners_up(const std::map<Key, Score>& fresh, const std::map<Key, Score>& missed,
                      size_t variant) {
  fmt::print(
      "\nThe last step's runners-up as a prediction: coverage / accuracy in percent\n\n| rows |");
  for (const double over : kLastStepSets) fmt::print(" x{} |", over);
  fmt::print("\n|---|---|---|---|---|\n");
  const auto print = [&](const char* rows, const std::map<Key, Score>& scores) {
    fmt::print("| {} |", rows);
    for (size_t over = 0; over < std::size(kLastStepSets); ++over) {
      const Score sum = over_layers(scores, kRunnersUp, variant, over);
      fmt::print(" {:.1f} / {:.1f} |", 100 * sum.coverage(), 100 * sum.accuracy());
    }
    fmt::print("\n");
  };
  print("that the step before did not take", fresh);
  print("that the hot rows miss", missed);
}

void print_candidates(const std::map<Key, Score>& missed, size_t variant) {
  fmt::print(
      "\nNext-query, all FCs, among the last step's best {} sets, rows that the hot rows miss: "
      "coverage / accuracy in percent\n\n| depth |",
      kCandidateSets);
  for (const double over : kOverFetch) fmt::print(" x{} |", over);
  fmt::print("\n|---|---|---|---|---|\n");
  for (int depth = 1; depth <= kDepths; ++depth) {
    fmt::print("| {} |", depth);
    for (size_t over = 0; over < std::size(kOverFetch); ++over) {
      const Score sum = over_layers(missed, kCandidates + depth, variant, over);
      fmt::print(" {:.1f} / {:.1f} |", 100 * sum.coverage(), 100 * sum.accuracy());
    }
    fmt::print("\n");
  }
}

// The running caches alone, on a recorded trace.
void run_on_trace(const std::string& path) {
  const SelectionTrace trace = SelectionTrace::load(path);
  const TraceShape& shape = trace.shape();
  if (shape.bands.empty()) throw InputError(fmt::format("{}: has no ranking", path));
  RunningCaches sum;
  for (int layer = 0; layer < shape.layers; ++layer) {
    for (int head = 0; head < shape.kv_heads; ++head) {
      RunningCaches caches(shape.set_ranked());
      for (int step = 0; step < trace.steps(); ++step) {
        const auto set = static_cast<size_t>(shape.set_ranked());
        const auto ranking = trace.ranking(step, layer, head);
        caches.step(ranking.first(std::min(set, ranking.size())),
                    trace.runners_up(step, layer, head), step >= kWarmSteps);
      }
      sum.add(caches);
    }
  }
  fmt::print("{}: {} tokens, {} of them compete for a set, {} steps\n", path, trace.context(0),
             shape.set_ranked(), trace.steps());
  sum.print();
}

void print_table(const char* title, const std::map<Key, Score>& scores,
                 const std::vector<Variant>& variants) {
  fmt::print("\n{}: coverage / accuracy in percent\n\n| FCs | order | depth |", title);
  for (const double over : kOverFetch) fmt::print(" x{} |", over);
  fmt::print("\n|---|---|---|---|---|---|---|\n");
  for (size_t variant = 0; variant < variants.size(); ++variant) {
    for (int depth = 0; depth <= kDepths; ++depth) {
      fmt::print("| {} | {} | {} |", variants[variant].chunks, order_name(variants[variant].order),
                 depth);
      for (size_t over = 0; over < std::size(kOverFetch); ++over) {
        const Score sum = over_layers(scores, depth, variant, over);
        fmt::print(" {:.1f} / {:.1f} |", 100 * sum.coverage(), 100 * sum.accuracy());
      }
      fmt::print("\n");
    }
  }
}

int run(int argc, char** argv) {
  std::string model_dir;
  std::vector<std::string> texts;
  int steps = 64, budget = 128, tokens = 7400, hot_sets = 2;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    const auto value = [&] { return i + 1 < argc ? std::atoi(argv[++i]) : 0; };
    if (argument == "--steps") {
      steps = value();
    } else if (argument == "--fac-tokens") {
      budget = value();
    } else if (argument == "--tokens") {
      tokens = value();
    } else if (argument == "--hot-sets") {
      hot_sets = value();
    } else if (argument == "--trace" && i + 1 < argc) {
      run_on_trace(argv[++i]);
      return 0;
    } else if (model_dir.empty()) {
      model_dir = argument;
    } else {
      texts.push_back(argument);
    }
  }
  if (texts.empty() || steps < 1 || budget <= kSinks + kRecent || tokens < 1 || hot_sets < 1) {
    fmt::print(stderr,
               "usage: prediction_study MODEL TEXT_FILE... [--steps N] [--fac-tokens N] "
               "[--tokens N] [--hot-sets N]\n       prediction_study --trace FILE\n");
    return 2;
  }
  DeviceOptions options;
  options.name = "cpu";
  const auto device = open_device(options);
  Model model = Model::load(model_dir, *device, std::nullopt);
  std::optional<FcMap> map;
  if (const std::string path = model_dir + "/fc_map.json"; std::filesystem::exists(path)) {
    map = FcMap::load(path);
  }
  const auto tokenizer = require_tokenizer(model_dir);
  std::map<Key, Score> fresh, missed;
  std::map<int, std::pair<int64_t, int64_t>> overlap, misses;
  RunningCaches caches;
  std::vector<Variant> variants;
  for (const std::string& text : texts) {
    std::vector<int32_t> prompt = tokenizer.encode(file_text(text));
    if (static_cast<int>(prompt.size()) > tokens) prompt.resize(static_cast<size_t>(tokens));
    Study study(model, map, budget, static_cast<int64_t>(prompt.size()) + steps, hot_sets);
    generate(model, study, prompt, budget, steps);
    fmt::print("{}: {} tokens, {} steps\n", text, prompt.size(), steps);
    add(study.fresh, fresh);
    add(study.missed, missed);
    add(study.overlap, overlap);
    add(study.misses, misses);
    for (const RunningCaches& head : study.caches) caches.add(head);
    variants = study.variants();
  }
  const auto usual =
      static_cast<size_t>(std::ranges::find(variants, 8, &Variant::chunks) - variants.begin());
  fmt::print("\n| layer | kept from the step before | not in the hot rows |");
  for (int depth = 1; depth <= kDepths; ++depth) fmt::print(" coverage, depth {} |", depth);
  fmt::print("\n|---|---|---|---|---|---|\n");
  for (const auto& [layer, pair] : overlap) {
    fmt::print("| {} | {:.1f} % | {:.1f} % |", layer,
               100.0 * double(pair.first) / double(pair.second),
               100.0 * double(misses[layer].first) / double(misses[layer].second));
    for (int depth = 1; depth <= kDepths; ++depth) {
      // Prediction by 8 FCs in the map's order if there is one, 1.5 sets.
      const auto found = missed.find({depth, usual, 2, layer});
      if (found == missed.end()) {
        fmt::print(" |");
      } else {
        fmt::print(" {:.1f} % |", 100 * found->second.coverage());
      }
    }
    fmt::print("\n");
  }
  print_table("Rows that the step before did not take", fresh, variants);
  print_table("Rows that the hot rows miss", missed, variants);
  print_runners_up(fresh, missed, variants.size() - 1);
  print_candidates(missed, variants.size() - 1);
  caches.print();
  return 0;
}

}  // namespace
}  // namespace fasa::bench

int main(int argc, char** argv) {
  return fasa::bench::study_main("prediction_study", fasa::bench::run, argc, argv);
}
