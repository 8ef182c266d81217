#include "runtime/lab/analyze/analysis.h"

#include <fmt/format.h>

#include <algorithm>

#include "runtime/base/error.h"
#include "runtime/calibrate/calibrate_ranking.h"
#include "runtime/calibrate/calibrate_slices.h"
#include "runtime/capture/calibration.h"

namespace fasa {
namespace {

constexpr int kChunk = 512;

std::vector<size_t> every_second(const std::vector<size_t>& all, size_t first) {
  std::vector<size_t> part;
  for (size_t i = first; i < all.size(); i += 2) part.push_back(all[i]);
  return part;
}

int ranked_count(const Geometry& geometry) {
  return static_cast<int>(geometry.ranked_chunks().size());
}

std::vector<int16_t> all_dims(const HeadSamples& samples) {
  std::vector<int16_t> dims;
  for (const Geometry::Pair& pair : samples.chunks) {
    dims.push_back(static_cast<int16_t>(pair.first));
    if (!pair.single()) dims.push_back(static_cast<int16_t>(pair.second));
  }
  return dims;
}

// The FCs of a KV head in the order that calibration gives, by distant attention over the even
// queries on text and the even probes.
std::vector<int> ranked_chunks(const HeadSamples& samples, const AnalysisText& text, int window) {
  HeadSamples part = samples;
  part.positions.clear();
  part.queries.clear();
  for (const auto* indices : {&text.anchors, &text.probes}) {
    for (const size_t query : every_second(*indices, 0)) {
      part.positions.push_back(samples.positions[query]);
      const float* first = samples.query(query, 0);
      part.queries.insert(part.queries.end(), first, first + samples.gqa_group * samples.key_dim);
    }
  }
  const HeadRanking ranking = rank_chunks(part, {.window = window});
  std::vector<int> order;
  for (const auto& dims : ranking.chunks) {
    const auto found = std::find_if(samples.chunks.begin(), samples.chunks.end(),
                                    [&](const auto& pair) { return pair.first == dims.front(); });
    order.push_back(static_cast<int>(found - samples.chunks.begin()));
  }
  return order;
}

class Analyzer {
 public:
  Analyzer(const Geometry& geometry, const AnalysisOptions& options, Analysis& analysis)
      : geometry_(geometry),
        options_(options),
        analysis_(analysis),
        compound_(ranked_count(geometry), {64, 256, 512, 768, 1024, 2048}) {
    analysis.slices = slice_choices(geometry.chunks(), 2);
    for (size_t i = 0; i < analysis.texts.size(); ++i) {
      analysis.agreement.emplace_back(geometry.layers, geometry.query_heads,
                                      ranked_count(geometry));
    }
  }

  void add(size_t text, int layer, int kv_head, const HeadSamples& samples) {
    const AnalysisText& from = analysis_.texts[text];
    const int first_head = kv_head * samples.gqa_group;
    AgreementTable& table = analysis_.agreement[text];
    table.add(samples, from.anchors, options_.window, layer, first_head);
    add_compound(from, samples);
    const FifthsTable fifths = find_fifths(samples, every_second(from.anchors, 1), table,
                                           options_.window, layer, first_head);
    for (size_t i = 0; i < fifths.dominant.size(); ++i) {
      analysis_.fifths.dominant[i] += fifths.dominant[i];
      analysis_.fifths.others[i] += fifths.others[i];
    }
    ++heads_;
    const std::vector<std::vector<size_t>> queries = {every_second(from.anchors, 1),
                                                      every_second(from.probes, 1)};
    add_slice_attention(samples, queries, ranked_chunks(samples, from, options_.slice_window),
                        options_.slice_window, analysis_.slices);
  }

  void finish() {
    analysis_.compound = compound_.table();
    for (size_t i = 0; i < analysis_.fifths.dominant.size(); ++i) {
      analysis_.fifths.dominant[i] /= static_cast<double>(heads_);
      analysis_.fifths.others[i] /= static_cast<double>(heads_);
    }
    overlaps();
  }

 private:
  // Ranked by agreement on the even anchors, measured on the odd ones.
  void add_compound(const AnalysisText& from, const HeadSamples& samples) {
    AgreementTable even(1, samples.gqa_group, ranked_count(geometry_));
    even.add(samples, every_second(from.anchors, 0), options_.window, 0, 0);
    std::vector<std::vector<int>> ranked;
    for (int head = 0; head < samples.gqa_group; ++head) {
      ranked.push_back(rank_by_agreement(even, 0, head, 1));
    }
    compound_.add(samples, coded_samples(samples, SliceDType::kInt2, all_dims(samples)),
                  from.anchors, ranked);
  }

  void overlaps() {
    constexpr int kAll = AgreementTable::kStretches;
    const int count = std::max(1, geometry_.chunks() / 4);
    const auto& tables = analysis_.agreement;
    for (const AgreementTable& one : tables) {
      auto& row = analysis_.text_overlap.emplace_back();
      for (const AgreementTable& other : tables) {
        row.push_back(map_overlap(one, kAll, other, kAll, geometry_.gqa_group(), count));
      }
    }
    for (int size = 2; size <= kAll; ++size) {
      double sum = 0;
      for (const AgreementTable& one : tables) {
        sum += map_overlap(one, size, one, kAll, geometry_.gqa_group(), count);
      }
      analysis_.size_overlap.push_back(sum / static_cast<double>(tables.size()));
    }
  }

  Geometry geometry_;
  const AnalysisOptions& options_;
  Analysis& analysis_;
  Compound compound_;
  int64_t heads_ = 0;
};

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
  const auto require = [](bool ok, std::string_view flag, auto given, const std::string& allowed) {
    if (!ok) throw UsageError(fmt::format("{} = {}: allowed: {}", flag, given, allowed));
  };
  require(tokens >= 256 && tokens <= max_positions, "--tokens", tokens,
          fmt::format("256 to {}, the number of positions of the model", max_positions));
  require(window >= 5 && 2 * int64_t{window} <= tokens, "--window", window,
          fmt::format("5 to {}, half the tokens of a text", tokens / 2));
  require(slice_window > 20 && 2 * int64_t{slice_window} <= tokens, "--fac-tokens", slice_window,
          fmt::format("21 to {}, half the tokens of a text", tokens / 2));
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
    const int64_t least =
        std::max<int64_t>(256, 2 * std::max(options.window, options.slice_window));
    analysis.texts.push_back(make_analysis_text(input.name, input.ids, options.tokens, least,
                                                options.queries, options.seed));
  }
  Analyzer analyzer(geometry, options, analysis);
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
          analyzer.add(text, layer, head, capture.take(layer, head));
        }
        if (progress) progress("layers", ++done, total);
      }
    }
  }
  analyzer.finish();
  return analysis;
}

}  // namespace fasa
