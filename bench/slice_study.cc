// How much of the distant attention that the true scores capture do slices capture? Bits x FCs at
// equal bytes; true pairs of dimensions against adjacent ones; maps per KV head against per query
// head. On the bundled model, for queries that answer questions and for queries on plain text, with
// maps made without task data (`distant_attention` on text with probes). Prints Markdown tables.
//   slice_study [--texts N] [--bytes N...]
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>

#include "bench/study_main.h"
#include "bench/study_model.h"
#include "runtime/base/parallel.h"
#include "runtime/calibrate/calibrate_query.h"
#include "runtime/calibrate/calibrate_slices.h"
#include "runtime/capture/calibration.h"

namespace fasa::bench {
namespace {

constexpr std::array<int64_t, 2> kBudgets = {32, 128};
constexpr int kTextQueries = 40;

// FCs of one head, or of each of its query heads, best first.
struct HeadMap {
  std::vector<HeadRanking> rankings;  // one, or one per query head
};

struct Slices {
  std::string label;
  SliceDType dtype;
  int chunks;
  size_t map;  // index of the maps
};

// [question or text][budget]
struct DistantAttention {
  double sum[2][kBudgets.size()] = {};
  void operator+=(const DistantAttention& other) {
    for (size_t kind = 0; kind < 2; ++kind) {
      for (size_t b = 0; b < kBudgets.size(); ++b) sum[kind][b] += other.sum[kind][b];
    }
  }
};

HeadSamples of_query_head(const HeadSamples& samples, int member) {
  HeadSamples one = samples;
  one.gqa_group = 1;
  one.queries.clear();
  for (size_t q = 0; q < samples.query_count(); ++q) {
    const float* from = samples.query(q, member);
    one.queries.insert(one.queries.end(), from, from + samples.key_dim);
  }
  return one;
}

// Pairs the dimensions of a half layout as the authors' published code does.
HeadSamples with_adjacent_pairs(HeadSamples samples) {
  for (int i = 0; i < static_cast<int>(samples.chunks.size()); ++i) {
    samples.chunks[static_cast<size_t>(i)] = {2 * i, 2 * i + 1};
  }
  return samples;
}

constexpr size_t kTruePairs = 0, kAdjacentPairs = 1, kPerQueryHead = 2;

// In the order of the constants above.
std::vector<HeadMap> maps_of(const HeadSamples& samples, const RankingOptions& options) {
  std::vector<HeadMap> maps(3);
  maps[kTruePairs].rankings = {rank_chunks(samples, options)};
  maps[kAdjacentPairs].rankings = {rank_chunks(with_adjacent_pairs(samples), options)};
  for (int member = 0; member < samples.gqa_group; ++member) {
    maps[kPerQueryHead].rankings.push_back(rank_chunks(of_query_head(samples, member), options));
  }
  return maps;
}

// As many FCs as fit into each number of bytes, then the comparisons of maps.
std::vector<Slices> all_slices(int chunks) {
  std::vector<Slices> all;
  for (const int bytes : {5, 10, 15, 16, 17, 18, 20, 32, 36}) {
    for (const SliceDType dtype :
         {SliceDType::kBF16, SliceDType::kInt8, SliceDType::kInt4, SliceDType::kInt2}) {
      int count = 0;
      while (count < chunks && slice_bytes_per_token(dtype, count + 1) <= bytes) ++count;
      const auto same = [&](const Slices& one) {
        return one.dtype == dtype && one.chunks == count;
      };
      if (count == 0 || std::any_of(all.begin(), all.end(), same)) continue;
      all.push_back({fmt::format("{} B: {} FCs {} ({:.1f} B)", bytes, count,
                                 slice_dtype_name(dtype), slice_bytes_per_token(dtype, count)),
                     dtype, count, kTruePairs});
    }
  }
  for (const int count : {8, 16}) {
    const auto add = [&](const char* label, size_t map) {
      all.push_back({fmt::format("{} FCs bf16, {}", count, label), SliceDType::kBF16, count, map});
    };
    add("true pairs, map per KV head", kTruePairs);
    add("adjacent pairs", kAdjacentPairs);
    add("map per query head", kPerQueryHead);
  }
  return all;
}

// Scores of one query by the coded keys of `slice`, a row per query head of `slice`.
void add_rows(const HeadSamples& slice, size_t query, ScoreRows& rows) {
  const auto visible = static_cast<size_t>(slice.visible_end(query));
  const auto stride = static_cast<size_t>(score_stride(slice.visible_end(query)));
  for (int member = 0; member < slice.gqa_group; ++member) {
    const size_t begin = rows.size();
    rows.resize(begin + stride);
    for (int dim = 0; dim < slice.key_dim; ++dim) {
      const float weight = slice.query(query, member)[dim];
      const float* plane = slice.key_plane(dim);
      for (size_t t = 0; t < visible; ++t) rows[begin + t] += weight * plane[t];
    }
  }
}

std::vector<HeadSamples> coded(const HeadSamples& samples, const Slices& slices,
                               const HeadMap& map) {
  const auto dims = [&](const HeadRanking& ranking) {
    std::vector<int16_t> all = ranking.dims();
    all.resize(static_cast<size_t>(2 * slices.chunks));
    return all;
  };
  std::vector<HeadSamples> parts;
  if (map.rankings.size() == 1) {
    parts.push_back(coded_samples(samples, slices.dtype, dims(map.rankings.front())));
    return parts;
  }
  for (size_t member = 0; member < map.rankings.size(); ++member) {
    parts.push_back(coded_samples(of_query_head(samples, static_cast<int>(member)), slices.dtype,
                                  dims(map.rankings[member])));
  }
  return parts;
}

// Distant attention that the true scores and all slices capture on one head of one text.
class HeadMeasure {
 public:
  HeadMeasure(const HeadSamples& samples, int64_t text_end) : samples_(samples) {
    QueryScratch scratch;
    for (size_t q = 0; q < samples.query_count(); ++q) {
      const size_t kind = samples.positions[q] >= text_end ? 0 : 1;
      kinds_.push_back(kind);
      for (size_t b = 0; b < kBudgets.size(); ++b) {
        truths_.emplace_back(samples, q, SelectionRule{kBudgets[b], 4, 16}, scratch);
        oracle_.sum[kind][b] += truths_.back().oracle_distant();
      }
    }
  }
  const DistantAttention& oracle() const { return oracle_; }
  DistantAttention captured(const Slices& slices, const HeadMap& map) const {
    QueryScratch scratch;
    DistantAttention sums;
    const std::vector<HeadSamples> parts = coded(samples_, slices, map);
    for (size_t q = 0; q < samples_.query_count(); ++q) {
      ScoreRows rows;
      for (const HeadSamples& part : parts) add_rows(part, q, rows);
      for (size_t b = 0; b < kBudgets.size(); ++b) {
        sums.sum[kinds_[q]][b] +=
            truths_[q * kBudgets.size() + b].captured_distant(rows, -1, scratch);
      }
    }
    return sums;
  }

 private:
  const HeadSamples& samples_;
  std::vector<size_t> kinds_;
  std::vector<CalibrationQuery> truths_;
  DistantAttention oracle_;
};

class SliceStudy {
 public:
  explicit SliceStudy(int texts) : study_(open_study_model()), texts_(texts) {}

  // Prints the share of the oracle's distant attention (questions 32 / 128 / text 32 / 128), on
  // texts of `bytes` bytes, by maps from text of about that length.
  void print(size_t bytes) {
    const Geometry geometry = study_.geometry();
    const auto slices = all_slices(geometry.chunks());
    const auto maps = make_maps(bytes);
    std::vector<DistantAttention> sums(slices.size());
    DistantAttention oracle;
    for (int i = 0; i < texts_; ++i) add_text(i, bytes, maps, slices, sums, oracle);
    fmt::print(
        "| {} texts of {} bytes | questions, 32 | 128 | text, 32 | 128 |\n"
        "|---|---|---|---|---|\n",
        texts_, bytes);
    for (size_t s = 0; s < slices.size(); ++s) {
      fmt::print("| {} |", slices[s].label);
      for (size_t kind = 0; kind < 2; ++kind) {
        for (size_t b = 0; b < kBudgets.size(); ++b) {
          fmt::print(" {:.3f} |", sums[s].sum[kind][b] / oracle.sum[kind][b]);
        }
      }
      fmt::print("\n");
    }
    fmt::print("\n");
    std::fflush(stdout);
  }

 private:
  // Maps of all layers and KV heads, [layers x kv_heads][kinds of maps].
  std::vector<std::vector<HeadMap>> make_maps(size_t bytes) {
    const Geometry geometry = study_.geometry();
    const int64_t tokens = std::min<int64_t>(4096, static_cast<int64_t>(bytes) + 50);
    const auto ids = study_.tokenizer->encode(study_.calibration);
    const CalibrationData data = make_calibration_data(ids, {.tokens = tokens});
    AttentionCapture capture = capture_attention(study_.model, data, 1024);
    const RankingOptions ranking{.window = default_calibration_window(tokens, 4, 16)};
    std::vector<std::vector<HeadMap>> maps;
    for (int layer = 0; layer < geometry.layers; ++layer) {
      for (int head = 0; head < geometry.kv_heads; ++head) {
        maps.push_back(maps_of(capture.take(layer, head), ranking));
      }
    }
    return maps;
  }

  void add_text(int index, size_t bytes, const std::vector<std::vector<HeadMap>>& maps,
                const std::vector<Slices>& slices, std::vector<DistantAttention>& sums,
                DistantAttention& oracle) {
    const Geometry geometry = study_.geometry();
    const QuestionText text = study_.asked_text(index, bytes);
    CalibrationData data;
    data.ids = text.ids;
    data.positions = sample_positions(text.text_end / 4, text.text_end, kTextQueries, 9);
    data.positions.insert(data.positions.end(), text.positions.begin(), text.positions.end());
    AttentionCapture capture = capture_attention(study_.model, data, 1024);
    for (size_t head = 0; head < maps.size(); ++head) {
      const auto kv_heads = static_cast<size_t>(geometry.kv_heads);
      const HeadSamples samples =
          capture.take(static_cast<int>(head / kv_heads), static_cast<int>(head % kv_heads));
      const HeadMeasure measure(samples, text.text_end);
      oracle += measure.oracle();
      parallel_for(size_t{0}, slices.size(), [&](size_t s) {
        sums[s] += measure.captured(slices[s], maps[head][slices[s].map]);
      });
    }
  }

  StudyModel study_;
  int texts_;
};

int run(int argc, char** argv) {
  CLI::App app("Distant attention that slices keep of the oracle's, on the bundled model");
  int texts = 2;
  std::vector<size_t> bytes = {900, 4096, 7500};
  app.add_option("--texts", texts, "Texts of 8 facts each")->check(CLI::Range(1, 8));
  app.add_option("--bytes", bytes, "Bytes per text")->check(CLI::Range(512, 7500));
  CLI11_PARSE(app, argc, argv);
  SliceStudy study(texts);
  for (const size_t length : bytes) study.print(length);
  return 0;
}

}  // namespace
}  // namespace fasa::bench

int main(int argc, char** argv) {
  return fasa::bench::study_main("slice_study", fasa::bench::run, argc, argv);
}
