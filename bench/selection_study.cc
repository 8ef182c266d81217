// How much of the attention mass on far tokens does each selection keep, budget by budget, of what
// the best tokens by the true scores hold? On the bundled model: a text with planted facts runs
// through it once; then every selection sees the same keys and queries, the first half of the text
// as a prompt, the rest token by token. Prints Markdown tables.
//   selection_study [--bytes N] [--texts N]
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <optional>

#include "bench/question_text.h"
#include "kernels/cpu/kernels.h"
#include "offload/open_device.h"
#include "runtime/base/parallel.h"
#include "runtime/input_file.h"
#include "runtime/layer_budgets.h"
#include "runtime/llm/calibration.h"
#include "scheduler/selection/selection_history.h"
#include "scheduler/selection/selection_stage.h"
#include "scheduler/selection/selection_table.h"
#include "scheduler/selection/slice_scores.h"
#include "scheduler/selection/vector_math.h"

namespace fasa::bench {
namespace {

const std::string kModels = std::string(FASA_SOURCE_DIR) + "/models/";
constexpr std::array<int64_t, 4> kBudgets = {32, 64, 128, 256};
constexpr int kSinks = 4;
constexpr int kRecent = 16;
constexpr int kTextQueries = 40;
constexpr size_t kFacts = 8;

struct Variant {
  std::string label;
  std::string kind = "fasa";
  SelectionOptions options = {};
  SliceDType slice = SliceDType::kInt2;
  int chunks = 0;  // FCs in the slices, 0 = all
  LayerBudget layer_budget = LayerBudget::kUniform;
  bool adaptive = false;  // `chunks` is the mean over heads: those that gain most get more
};

// FASA's own through the class, for what the fused kernel selects, too.
std::shared_ptr<const TokenSelection> make(const Variant& variant) {
  const SelectionKind kind = find_selection(variant.kind).value();
  auto made = make_selection(kind, variant.options);
  return made ? made : std::make_shared<SliceSelection>(variant.options);
}

// What the queries of one layer and KV head attend to.
struct Truth {
  int32_t position;
  bool question;
  std::vector<std::vector<float>> mass;  // [query heads of the group][tokens]
};

Truth truth_at(const HeadSamples& samples, int32_t position, bool question) {
  Truth truth{position, question, {}};
  const auto visible = static_cast<size_t>(position) + 1;
  for (int head = 0; head < samples.group; ++head) {
    std::vector<float> scores(visible);
    const float* query = samples.query(static_cast<size_t>(position), head);
    for (int d = 0; d < samples.key_dim; ++d) {
      const float* plane = samples.key_plane(d);
      for (size_t t = 0; t < visible; ++t) scores[t] += query[d] * plane[t];
    }
    softmax(scores, samples.scale);
    truth.mass.push_back(std::move(scores));
  }
  return truth;
}

double captured(const Truth& truth, int head, std::span<const int32_t> set) {
  double sum = 0;
  for (const int32_t token : set) {
    if (token < kSinks || token > truth.position - kRecent) continue;
    sum += static_cast<double>(truth.mass[static_cast<size_t>(head)][static_cast<size_t>(token)]);
  }
  return sum;
}

// One layer and KV head of the model as a cache of its own, filled as a sequence grows.
class HeadCache {
 public:
  HeadCache(const HeadSamples& samples, const Variant& variant, TokenBudget budget,
            std::span<const int16_t> ranked_dims)
      : samples_(samples) {
    settings_.selection = make(variant);
    settings_.selection_remembers = settings_.selection->make_policy() != nullptr;
    settings_.set_per_query_head = variant.options.scope == SelectionScope::kQueryHead;
    settings_.scale = samples.scale;
    settings_.layers = {{.dense = false, .budget = budget, .window = samples.window}};
    CacheLayout& layout = settings_.layout;
    layout.layers = 1;
    layout.kv_heads = 1;
    layout.group = samples.group;
    layout.row = {DType::kF32, samples.key_dim, 1};
    layout.sinks = kSinks;
    layout.recent = kRecent;
    if (settings_.selection->reads_slices()) {
      const int all = static_cast<int>(ranked_dims.size());
      layout.slice = {variant.slice, variant.chunks > 0 ? 2 * variant.chunks : all};
      dims_.assign(ranked_dims.begin(), ranked_dims.begin() + layout.slice.dims);
    }
    const auto pages = static_cast<size_t>(pages_of(samples.tokens));
    rows_.resize(pages * lines(layout.row_block_bytes()));
    slices_.resize(pages * lines(layout.slice_block_bytes()));
    tail_.resize(lines(layout.tail_bytes()));
    for (size_t page = 0; page < pages; ++page) {
      row_blocks_.push_back(rows_[page * lines(layout.row_block_bytes())].bytes);
      slice_blocks_.push_back(slices_[page * lines(layout.slice_block_bytes())].bytes);
    }
    if (settings_.selection_remembers) history_.emplace(settings_);
    sets_.resize(static_cast<size_t>(settings_.set_heads()) * static_cast<size_t>(kCapacity));
    sizes_.resize(static_cast<size_t>(settings_.set_heads()));
    transpose_keys();
  }

  void append(int32_t start, int count, StepMode mode) {
    for (int32_t at = start; at < start + count;) {  // page by page
      const int now = std::min(start + count - at, kPageTokens - at % kPageTokens);
      const SequenceDesc sequence = describe(at, now, mode);
      const auto dim = static_cast<int64_t>(samples_.key_dim);
      cpu::append({.step = step(sequence),
                   .k = ConstTensorView::dense(keys_.data() + at * dim, DType::kF32, now, 1, dim),
                   .v = ConstTensorView::dense(kZeros, DType::kF32, now, 1, 1),
                   .rows_on_device = true});
      at += now;
    }
  }
  void observe(int32_t start, int count) const {
    if (!history_) return;
    const SequenceDesc sequence = describe(start, count, StepMode::kPrefill);
    stage(sequence).observe_prefill();
  }
  bool remembers() const { return history_.has_value(); }
  // Of the token at `position`, appended: far mass captured over the group.
  double select(const Truth* truth, int32_t position) {
    const SequenceDesc sequence = describe(position, 1, StepMode::kDecode);
    stage(sequence).select();
    double sum = 0;
    if (truth == nullptr) return sum;
    const int sharers = samples_.group / settings_.set_heads();
    for (int head = 0; head < samples_.group; ++head) {
      const auto set = static_cast<size_t>(head / sharers);
      sum += captured(*truth, head,
                      std::span(sets_).subspan(set * static_cast<size_t>(kCapacity),
                                               static_cast<size_t>(sizes_[set])));
    }
    return sum;
  }

 private:
  struct alignas(64) Line {
    std::byte bytes[64];
  };
  static constexpr int32_t kCapacity = 1 << 14;
  static size_t lines(int64_t bytes) { return static_cast<size_t>((bytes + 63) / 64); }

  void transpose_keys() {
    keys_.resize(static_cast<size_t>(samples_.tokens * samples_.key_dim));
    for (int64_t t = 0; t < samples_.tokens; ++t) {
      for (int d = 0; d < samples_.key_dim; ++d) {
        keys_[static_cast<size_t>(t * samples_.key_dim + d)] = samples_.key_plane(d)[t];
      }
    }
  }
  SequenceDesc describe(int32_t start, int count, StepMode mode) const {
    SequenceDesc sequence;
    sequence.mode = mode;
    sequence.tokens = count;
    sequence.start = start;
    sequence.row_blocks = row_blocks_.data();
    sequence.slice_blocks = slice_blocks_.data();
    sequence.tail = const_cast<std::byte*>(tail_.empty() ? nullptr : tail_.front().bytes);
    return sequence;
  }
  StepParams step(const SequenceDesc& sequence) const {
    return {.layout = settings_.layout,
            .sequences = &sequence,
            .count = 1,
            .layer = 0,
            .slice_dims = dims_.data()};
  }
  SelectionStage stage(const SequenceDesc& sequence) const {
    tables_.histories = {history_ ? const_cast<SelectionHistory*>(&*history_) : nullptr};
    const auto dim = static_cast<int64_t>(samples_.key_dim);
    return {settings_, tables_,
            SelectParams{
                .step = step(sequence),
                .q = ConstTensorView::dense(samples_.query(static_cast<size_t>(sequence.start), 0),
                                            DType::kF32, sequence.tokens, samples_.group, dim),
                .budget = settings_.layers[0].budget,
                .window = samples_.window,
                .set_capacity = kCapacity,
                .sets = const_cast<int32_t*>(sets_.data()),
                .set_sizes = const_cast<int32_t*>(sizes_.data())}};
  }

  static inline const float kZeros[kPageTokens] = {};
  const HeadSamples& samples_;
  StepSettings settings_;
  mutable StepTables tables_;
  std::vector<int16_t> dims_;
  std::vector<float> keys_;
  std::vector<Line> rows_, slices_, tail_;
  std::vector<std::byte*> row_blocks_, slice_blocks_;
  std::optional<SelectionHistory> history_;
  std::vector<int32_t> sets_, sizes_;
};

// [question queries or text queries]
using Mass = std::array<double, 2>;

Mass run_head(const HeadSamples& samples, const std::vector<Truth>& truths, int32_t prompt,
              const Variant& variant, TokenBudget budget, std::span<const int16_t> dims) {
  HeadCache cache(samples, variant, budget, dims);
  cache.append(0, prompt, StepMode::kPrefill);
  cache.observe(0, prompt);
  Mass mass{};
  size_t next = 0;
  for (auto position = prompt; position < samples.tokens; ++position) {
    cache.append(position, 1, StepMode::kDecode);
    const bool asked = next < truths.size() && truths[next].position == position;
    const Truth* truth = asked ? &truths[next++] : nullptr;
    if (!asked && !cache.remembers()) continue;
    const double sum = cache.select(truth, position);
    if (asked) mass[truth->question ? 0 : 1] += sum;
  }
  return mass;
}

// FCs per head, [layers x kv_heads], `mean` of them in the mean: dealt out by what the map's curves
// say that they add, several at a time where one alone adds nothing yet.
std::vector<int> adaptive_chunks(const FcMap& map, int mean) {
  std::vector<const std::vector<double>*> curves;
  for (const auto& layer : map.heads) {
    for (const HeadRanking& head : layer) curves.push_back(&head.far_mass_kept);
  }
  std::vector<int> counts(curves.size(), 1);
  auto left = static_cast<int>(curves.size()) * (mean - 1);
  while (left > 0) {
    size_t best = 0;
    int best_step = 0;
    double best_gain = -1;
    for (size_t h = 0; h < curves.size(); ++h) {
      const std::vector<double>& curve = *curves[h];
      const auto at = static_cast<size_t>(counts[h]);
      for (size_t step = 1; step <= static_cast<size_t>(left) && at + step <= curve.size();
           ++step) {
        const double gain = (curve[at + step - 1] - curve[at - 1]) / static_cast<double>(step);
        if (gain <= best_gain) continue;
        best_gain = gain;
        best = h;
        best_step = static_cast<int>(step);
      }
    }
    if (best_step == 0) break;
    counts[best] += best_step;
    left -= best_step;
  }
  return counts;
}

class Study {
 public:
  Study(size_t bytes, int texts) : bytes_(bytes), texts_(texts) {
    DeviceOptions options;
    options.name = "cpu";
    device_ = open_device(options);
    model_.emplace(Model::load(kModels + "needle-3m", *device_, DType::kF32));
    tokenizer_ = Tokenizer::load(kModels + "needle-3m");
    geometry_ = model_->config().geometry();
    CalibrationOptions calibration;
    calibration.tokens = 4096;
    const auto ids = tokenizer_->encode(read("ruth.txt") + read("state-of-the-union-1996.txt"));
    map_ = calibrate(*model_, ids, calibration);
    dims_ = map_.slice_dims(geometry_.chunks());
    for (int i = 0; i < texts; ++i) capture(i);
  }

  // [variants][budgets], summed over texts, layers and heads.
  std::vector<std::array<Mass, kBudgets.size()>> run(const std::vector<Variant>& variants) {
    std::vector<std::array<Mass, kBudgets.size()>> sums(variants.size());
    parallel_for(size_t{0}, variants.size() * kBudgets.size(), [&](size_t job) {
      const size_t v = job / kBudgets.size();
      const size_t b = job % kBudgets.size();
      sums[v][b] = run_one(variants[v], kBudgets[b]);
    });
    return sums;
  }

 private:
  struct Head {
    HeadSamples samples;
    std::vector<Truth> truths;
    int32_t prompt;
    int layer, kv_head;
  };

  static std::string read(const std::string& name) {
    const auto text = read_file(kModels + "texts/" + name);
    if (!text) throw InputError(fmt::format("{}texts/{} cannot be read", kModels, name));
    return *text;
  }

  void capture(int index) {
    const std::string source = read("revelation.txt").substr(20000);
    const NeedleText needle = plant_facts(source, static_cast<size_t>(index) * 3000, bytes_, kFacts,
                                          500 + static_cast<uint64_t>(index));
    const QuestionText text = with_questions(*tokenizer_, needle, kFacts);
    CalibrationData data;
    data.ids = text.ids;
    for (int32_t p = 0; p < static_cast<int32_t>(text.ids.size()); ++p) data.positions.push_back(p);
    AttentionCapture all = capture_attention(*model_, data, 1024);
    const auto prompt = static_cast<int32_t>(text.text_end / 2);
    for (int layer = 0; layer < geometry_.layers; ++layer) {
      for (int kv_head = 0; kv_head < geometry_.kv_heads; ++kv_head) {
        Head head{all.take(layer, kv_head), {}, prompt, layer, kv_head};
        for (int i = 0; i < kTextQueries; ++i) {
          const int64_t at = prompt + (text.text_end - prompt) * (2 * i + 1) / (2 * kTextQueries);
          head.truths.push_back(truth_at(head.samples, static_cast<int32_t>(at), false));
        }
        for (const int32_t position : text.positions) {
          head.truths.push_back(truth_at(head.samples, position, true));
        }
        heads_.push_back(std::move(head));
      }
    }
  }

  Mass run_one(const Variant& variant, int64_t budget) const {
    Config config;
    config.selection.fac_tokens = {{.tokens = budget, .share = 0}};
    config.selection.layer_budget = variant.layer_budget;
    const std::vector<TokenBudget> budgets = layer_budgets(config, geometry_);
    const auto width = static_cast<size_t>(geometry_.key_dim);
    std::vector<int> chunks(map_.heads.size() * static_cast<size_t>(geometry_.kv_heads),
                            variant.chunks);
    if (variant.adaptive) chunks = adaptive_chunks(map_, variant.chunks);
    Mass sum{};
    for (const Head& head : heads_) {
      const auto index = static_cast<size_t>(head.layer * geometry_.kv_heads + head.kv_head);
      Variant own = variant;
      own.chunks = chunks[index];
      const Mass mass = run_head(head.samples, head.truths, head.prompt, own,
                                 budgets[static_cast<size_t>(head.layer)],
                                 std::span(dims_).subspan(index * width, width));
      sum[0] += mass[0];
      sum[1] += mass[1];
    }
    return sum;
  }

  size_t bytes_;
  int texts_;
  std::unique_ptr<Device> device_;
  std::optional<Model> model_;
  std::unique_ptr<Tokenizer> tokenizer_;
  Geometry geometry_;
  FcMap map_;
  std::vector<int16_t> dims_;
  std::vector<Head> heads_;
};

std::vector<Variant> selections() {
  std::vector<Variant> all{
      {.label = "fasa, all FCs, int2"},
      {.label = "fasa, 16 of 32 FCs, int2", .chunks = 16},
      {.label = "fasa, 8 FCs, bf16 (the paper's)", .slice = SliceDType::kBF16, .chunks = 8}};
  for (const char* kind : {"streaming", "snapkv", "h2o", "rkv", "quest", "sparq", "random"}) {
    all.push_back({.label = kind, .kind = kind});
  }
  return all;
}

std::vector<Variant> variants() {
  std::vector<Variant> all{{.label = "fasa, all FCs, int2"}};
  const auto add = [&](std::string label, SelectionOptions options) {
    all.push_back({.label = std::move(label), .options = options});
  };
  add("`group_rule = log-softmax`", {.rule = GroupRule::kLogSoftmaxMax});
  add("`group_rule = softmax-sum`", {.rule = GroupRule::kSoftmaxSum});
  add("`group_rule = raw-max`", {.rule = GroupRule::kRawMax});
  add("`group_rule = raw-sum`", {.rule = GroupRule::kRawSum});
  add("`scope = query_head`", {.scope = SelectionScope::kQueryHead});
  for (const int tokens : {8, 16, 32}) {
    add(fmt::format("`page_tokens = {}`", tokens), {.page_tokens = tokens});
  }
  for (const float factor : {1.25f, 1.5f, 2.0f}) {
    add(fmt::format("`rescore = {}`", factor), {.rescore = factor});
  }
  all.push_back({.label = "`layer_budget = pyramid`", .layer_budget = LayerBudget::kPyramid});
  all.push_back(
      {.label = "oracle, pyramid", .kind = "oracle", .layer_budget = LayerBudget::kPyramid});
  all.push_back({.label = "fasa, 16 FCs, int2", .chunks = 16});
  all.push_back({.label = "16 FCs, `rescore = 2`", .options = {.rescore = 2}, .chunks = 16});
  all.push_back({.label = "16 FCs in the mean, by head", .chunks = 16, .adaptive = true});
  all.push_back(
      {.label = "fasa, 8 FCs, bf16", .slice = SliceDType::kBF16, .chunks = 8, .adaptive = false});
  all.push_back({.label = "8 FCs in the mean, by head, bf16",
                 .slice = SliceDType::kBF16,
                 .chunks = 8,
                 .adaptive = true});
  return all;
}

void print_table(Study& study, const std::vector<Variant>& rows) {
  std::vector<Variant> all = rows;
  all.push_back({.label = "oracle", .kind = "oracle"});
  const auto sums = study.run(all);
  fmt::print("| selection |");
  for (const int64_t budget : kBudgets) fmt::print(" {} |", budget);
  fmt::print("\n|---|");
  for (size_t b = 0; b < kBudgets.size(); ++b) fmt::print("---|");
  fmt::print("\n");
  for (size_t v = 0; v < rows.size(); ++v) {
    fmt::print("| {} |", rows[v].label);
    for (size_t b = 0; b < kBudgets.size(); ++b) {
      fmt::print(" {:.3f} / {:.3f} |", sums[v][b][0] / sums.back()[b][0],
                 sums[v][b][1] / sums.back()[b][1]);
    }
    fmt::print("\n");
  }
  fmt::print("\n");
  std::fflush(stdout);
}

int run(int argc, char** argv) {
  CLI::App app("Far mass that selections keep of the oracle's, on the bundled model");
  size_t bytes = 4096;
  int texts = 2;
  app.add_option("--bytes", bytes, "Of a text")->check(CLI::Range(512, 12000));
  app.add_option("--texts", texts, "Texts of 8 facts each")->check(CLI::Range(1, 8));
  CLI11_PARSE(app, argc, argv);
  Study study(bytes, texts);
  fmt::print("Far mass kept of the oracle's, questions / text, {} texts of {} bytes\n\n", texts,
             bytes);
  print_table(study, selections());
  print_table(study, variants());
  return 0;
}

}  // namespace
}  // namespace fasa::bench

int main(int argc, char** argv) {
  try {
    return fasa::bench::run(argc, argv);
  } catch (const fasa::Error& error) {
    fmt::print(stderr, "selection_study: {}\n", error.what());
    return static_cast<int>(error.kind());
  }
}
