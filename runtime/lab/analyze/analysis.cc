#include "runtime/lab/analyze/analysis.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <random>

#include "runtime/base/error.h"
#include "runtime/base/require.h"
#include "runtime/capture/calibration.h"

namespace fasa {
namespace {

constexpr int kChunk = 512;

AnalysisText make_text(const AnalysisInput& input, const AnalysisOptions& options) {
  const int64_t least = std::max<int64_t>(256, 2 * options.window);
  if (std::ssize(input.ids) < least) {
    throw InputError(
        fmt::format("{}: the text has {} tokens; an analysis with this window needs {}; give a "
                    "longer text, or lower --window",
                    input.name, input.ids.size(), least));
  }
  const int64_t tokens = std::min(options.tokens, std::ssize(input.ids));
  std::vector<int32_t> all(static_cast<size_t>(tokens / 3));
  std::iota(all.begin(), all.end(), static_cast<int32_t>(tokens - tokens / 3));
  AnalysisText text{.name = input.name, .data = {}};
  std::mt19937_64 random(options.seed);
  std::sample(all.begin(), all.end(), std::back_inserter(text.data.positions), options.queries,
              random);
  text.data.ids.assign(input.ids.begin(), input.ids.begin() + tokens);
  return text;
}

void add_overlaps(const Geometry& geometry, Analysis& analysis) {
  constexpr int kAll = AgreementTable::kStretches;
  const int count = std::max(1, geometry.chunks() / 4);
  const auto& tables = analysis.agreement;
  for (const AgreementTable& one : tables) {
    auto& row = analysis.text_overlap.emplace_back();
    for (const AgreementTable& other : tables) {
      row.push_back(map_overlap(one, kAll, other, kAll, geometry.gqa_group(), count));
    }
  }
  for (int size = 2; size <= kAll; ++size) {
    double sum = 0;
    for (const AgreementTable& one : tables) {
      sum += map_overlap(one, size, one, kAll, geometry.gqa_group(), count);
    }
    analysis.size_overlap.push_back(sum / static_cast<double>(tables.size()));
  }
}

// As many layers as fit into capture_bytes, for every text.
int layers_at_once(const Geometry& geometry, const Analysis& analysis, uint64_t bytes) {
  uint64_t largest = 1;
  for (const AnalysisText& text : analysis.texts) {
    largest = std::max(largest,
                       AttentionCapture::bytes(geometry, static_cast<int64_t>(text.data.ids.size()),
                                               text.data.positions.size()));
  }
  return static_cast<int>(
      std::clamp<uint64_t>(bytes / largest, 1, static_cast<uint64_t>(geometry.layers)));
}

}  // namespace

void AnalysisOptions::validate(const Geometry& geometry, int64_t max_positions) const {
  require(tokens >= 256 && tokens <= max_positions, "--tokens", tokens,
          fmt::format("256 to {}, the number of positions of the model", max_positions));
  require(window >= 5 && 2 * int64_t{window} <= tokens, "--window", window,
          fmt::format("5 to {}, half the tokens of a text", tokens / 2));
  require(queries >= 20 && queries <= 10000, "--queries", queries, "20 to 10000");
  require(geometry.chunks() >= 2, "frequency chunks", geometry.chunks(), "2 or more");
}

double Analysis::mean_agreement(int layer, int head, int chunk) const {
  double sum = 0;
  for (const AgreementTable& table : agreement) sum += table.at(layer, head, chunk);
  return sum / static_cast<double>(agreement.size());
}

double Analysis::share_of_chunks(const std::function<bool(double)>& test) const {
  const AgreementTable& shape = agreement.front();
  int64_t passed = 0, all = 0;
  for (int layer = 0; layer < shape.layers(); ++layer) {
    for (int head = 0; head < shape.query_heads(); ++head) {
      for (int chunk = 0; chunk < shape.chunks(); ++chunk, ++all) {
        passed += test(mean_agreement(layer, head, chunk)) ? 1 : 0;
      }
    }
  }
  return static_cast<double>(passed) / static_cast<double>(all);
}

Analysis analyze(Model& model, const std::vector<AnalysisInput>& inputs,
                 const AnalysisOptions& options, const AnalysisProgress& progress) {
  const Geometry geometry = model.config().geometry();
  options.validate(geometry, model.config().max_positions);
  Analysis analysis;
  for (const AnalysisInput& input : inputs) {
    analysis.texts.push_back(make_text(input, options));
    analysis.agreement.emplace_back(geometry.layers, geometry.query_heads,
                                    static_cast<int>(geometry.ranked_chunks().size()));
  }
  const int group = layers_at_once(geometry, analysis, options.capture_bytes);
  const auto total = static_cast<int64_t>(analysis.texts.size()) * geometry.layers;
  int64_t done = 0;
  for (size_t text = 0; text < analysis.texts.size(); ++text) {
    for (int first = 0; first < geometry.layers; first += group) {
      const LayerRange layers{first, std::min(first + group, geometry.layers)};
      AttentionCapture capture =
          capture_attention(model, analysis.texts[text].data, layers, kChunk);
      for (int layer = layers.first; layer < layers.end; ++layer) {
        for (int head = 0; head < geometry.kv_heads; ++head) {
          const HeadSamples samples = capture.take(layer, head);
          analysis.agreement[text].add(samples, options.window, layer, head * samples.gqa_group);
        }
        if (progress) progress(++done, total);
      }
    }
  }
  add_overlaps(geometry, analysis);
  return analysis;
}

}  // namespace fasa
