// How much of the attention on distant tokens does each selection capture, relative to the best
// tokens by the true scores, by budget? On the bundled model: a text with planted facts is run
// once; then every selection sees the same keys and queries, the first half of the text as a
// prompt, the rest token by token. Prints Markdown tables.
//   selection_study [--bytes N] [--texts N] [--only LABEL...]
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <optional>

#include "bench/head_cache.h"
#include "bench/study_main.h"
#include "bench/study_model.h"
#include "runtime/base/parallel.h"
#include "runtime/capture/calibration.h"
#include "runtime/config/layer_budgets.h"

namespace fasa::bench {
namespace {

constexpr std::array<int64_t, 4> kBudgets = {32, 64, 128, 256};
constexpr int kTextQueries = 40;

// [question queries or text queries]
using Attention = std::array<double, 2>;

Attention run_head(const HeadSamples& samples, const std::vector<Truth>& truths, int32_t prompt,
                   const Variant& variant, TokenBudget budget, std::span<const int16_t> dims) {
  HeadCache cache(samples, variant, budget, dims);
  cache.append(0, prompt, StepMode::kPrefill);
  cache.observe(0, prompt);
  Attention attention{};
  size_t next = 0;
  for (auto position = prompt; position < samples.tokens; ++position) {
    cache.append(position, 1, StepMode::kDecode);
    const bool asked = next < truths.size() && truths[next].position == position;
    const Truth* truth = asked ? &truths[next++] : nullptr;
    if (!asked && !cache.remembers()) continue;
    const double sum = cache.select(truth, position);
    if (asked) attention[truth->question ? 0 : 1] += sum;
  }
  return attention;
}

// FCs per head, [layers x kv_heads], `mean` on average: distributed by the gain that the map's
// curves give, several at a time if one alone has no gain.
std::vector<int> adaptive_chunks(const FcMap& map, int mean) {
  std::vector<const std::vector<double>*> curves;
  for (const auto& layer : map.heads) {
    for (const HeadRanking& head : layer) curves.push_back(&head.distant_attention_kept);
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
  Study(size_t bytes, int texts) : bytes_(bytes), study_(open_study_model()) {
    CalibrationOptions calibration;
    calibration.tokens = 4096;
    map_ = calibrate(study_.model, study_.tokenizer->encode(study_.calibration), calibration);
    dims_ = map_.slice_dims(geometry_.chunks());
    for (int i = 0; i < texts; ++i) capture(i);
  }

  // [variants][budgets], summed over texts, layers and heads.
  std::vector<std::array<Attention, kBudgets.size()>> run(const std::vector<Variant>& variants) {
    std::vector<std::array<Attention, kBudgets.size()>> sums(variants.size());
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

  void capture(int index) {
    const QuestionText text = study_.asked_text(index, bytes_);
    CalibrationData data;
    data.ids = text.ids;
    for (int32_t p = 0; p < static_cast<int32_t>(text.ids.size()); ++p) data.positions.push_back(p);
    AttentionCapture all = capture_attention(study_.model, data, 1024);
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

  Attention run_one(const Variant& variant, int64_t budget) const {
    Config config;
    config.selection.fac_tokens = {{.tokens = budget, .share = 0}};
    config.selection.low_bit_tokens = TokenCount{};
    config.selection.layer_budget = variant.layer_budget;
    const std::vector<TokenBudget> budgets = layer_budgets(config, geometry_);
    const auto width = static_cast<size_t>(geometry_.key_dim);
    std::vector<int> chunks(map_.heads.size() * static_cast<size_t>(geometry_.kv_heads),
                            variant.chunks);
    if (variant.adaptive) chunks = adaptive_chunks(map_, variant.chunks);
    Attention sum{};
    for (const Head& head : heads_) {
      const auto index = static_cast<size_t>(head.layer * geometry_.kv_heads + head.kv_head);
      Variant own = variant;
      own.chunks = chunks[index];
      const Attention attention = run_head(head.samples, head.truths, head.prompt, own,
                                           budgets[static_cast<size_t>(head.layer)],
                                           std::span(dims_).subspan(index * width, width));
      sum[0] += attention[0];
      sum[1] += attention[1];
    }
    return sum;
  }

  size_t bytes_;
  StudyModel study_;
  Geometry geometry_ = study_.geometry();
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
  all.push_back({.label = "log-softmax by estimated sums", .estimated = true});
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

// The variants whose label contains one of the parts; all of them if there are no parts.
std::vector<Variant> holding(std::vector<Variant> all, const std::vector<std::string>& parts) {
  std::erase_if(all, [&](const Variant& one) {
    return !parts.empty() && std::none_of(parts.begin(), parts.end(), [&](const auto& part) {
      return one.label.find(part) != one.label.npos;
    });
  });
  return all;
}

void print_table(Study& study, const std::vector<Variant>& rows) {
  if (rows.empty()) return;
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
  CLI::App app("Distant attention that selections keep of the oracle's, on the bundled model");
  size_t bytes = 4096;
  int texts = 2;
  app.add_option("--bytes", bytes, "Bytes per text")->check(CLI::Range(512, 12000));
  app.add_option("--texts", texts, "Texts of 8 facts each")->check(CLI::Range(1, 8));
  std::vector<std::string> only;
  app.add_option("--only", only, "Variants whose label holds one of these texts");
  CLI11_PARSE(app, argc, argv);
  Study study(bytes, texts);
  fmt::print("Distant attention kept of the oracle's, questions / text, {} texts of {} bytes\n\n",
             texts, bytes);
  print_table(study, holding(selections(), only));
  print_table(study, holding(variants(), only));
  return 0;
}

}  // namespace
}  // namespace fasa::bench

int main(int argc, char** argv) {
  return fasa::bench::study_main("selection_study", fasa::bench::run, argc, argv);
}
