// prefetch.depth = auto against depths 0 and 1 (2 and more fetch the same rows), with given numbers
// of hot rows, in virtual time, after a short and after a long warm-up: two GPUs, four links, three
// sizes of sets, both traces. Every thirteenth cell, and one whose link is slow beside its compute;
// with FASA_LONG=1 all, and a table of them. FASA_CELLS=TEXT: those whose row has the text.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include "runtime/catalog/geometry_catalog.h"
#include "runtime/catalog/gpu_catalog.h"
#include "runtime/synthetic/synthetic_decode.h"

namespace fasa::testing {
namespace {

constexpr int kLayers = 16;  // of the table; a link that falls behind shows over many
constexpr int kFewLayers = 4;
constexpr int kMeasured = 16;
constexpr std::array kWarm{16, 48};
constexpr char kSlowLink[] = "H100 PCIe | 3 GB/s | 2048 | 8 | questions";

struct Cell {
  std::string gpu;
  double link;
  int set;
  int hot_sets;
  bool story;

  std::string name() const {
    return fmt::format("{} | {:g} GB/s | {} | {} | {}", gpu, link / 1e9, set, hot_sets,
                       story ? "story" : "questions");
  }
};

std::vector<Cell> all_cells() {
  std::vector<Cell> cells;
  for (const char* gpu : {"RTX 4060 Ti 16GB", "H100 PCIe"}) {
    for (const double link : {3e9, 12.6e9, 25e9, 50e9}) {
      for (const int set : {320, 1024, 2048}) {
        for (const int hot_sets : {4, 8, 16}) {
          for (const bool story : {false, true}) cells.push_back({gpu, link, set, hot_sets, story});
        }
      }
    }
  }
  return cells;
}

using Times = std::array<double, kWarm.size()>;  // seconds of a step after each warm-up

Times times_at(const Cell& cell, std::optional<int> depth, const SelectionTrace& trace) {
  const ModelShape& shape = find_model_shape("Llama-3.1-8B");
  SyntheticOptions options;
  options.geometry = shape.geometry;
  options.geometry.layers = std::getenv("FASA_LONG") != nullptr ? kLayers : kFewLayers;
  options.tokens = 131072;
  options.max_steps = kWarm.back() + kMeasured;
  options.weights.layer_bytes = weight_load(shape, 4).layer_bytes;
  options.memory_bandwidth = find_gpu(cell.gpu).memory_bandwidth;
  options.config.link.bandwidth = cell.link;
  options.config.selection.fac_tokens = {{.tokens = cell.set, .share = 0}};
  options.config.selection.low_bit_tokens = TokenCount{.tokens = 1024, .share = 0};
  options.config.placement.hot_rows = cell.hot_sets * cell.set;
  options.config.prefetch.depth = depth;
  SyntheticDecode decode(options, trace);
  std::vector<double> seconds;
  for (int i = 0; i < options.max_steps; ++i) seconds.push_back(decode.step().seconds);
  Times times{};
  for (size_t i = 0; i < kWarm.size(); ++i) {
    const auto first = seconds.begin() + kWarm[i];
    times[i] = std::accumulate(first, first + kMeasured, 0.0) / kMeasured;
  }
  return times;
}

TEST(GivenHotRows, DepthAutoIsNeverTheWrongChoice) {
  const char* const share = std::getenv("FASA_LONG");
  const bool whole = share != nullptr;
  const char* const wanted = std::getenv("FASA_CELLS");
  const std::string file = default_selection_trace();
  const std::string story = file.substr(0, file.rfind('.')) + "-story.fasatrace";
  const std::array traces{SelectionTrace::load(file), SelectionTrace::load(story)};
  if (whole) {
    fmt::print(
        "| GPU | link | fac_tokens | hot rows, sets | trace | warm-up | depth 0, us | depth 1 | "
        "auto | over the best |\n");
  }
  int pays = 0, harms = 0;
  const std::vector<Cell> cells = all_cells();
  const size_t every = whole ? static_cast<size_t>(std::max(1, std::atoi(share))) : 13;
  for (size_t i = 0; i < cells.size(); ++i) {
    const Cell& cell = cells[i];
    if (i % every != 0 && cell.name() != kSlowLink) continue;
    if (wanted != nullptr && cell.name().find(wanted) == std::string::npos) continue;
    const SelectionTrace& trace = traces[cell.story ? 1 : 0];
    const Times off = times_at(cell, 0, trace);
    const Times on = times_at(cell, 1, trace);
    const Times automatic = times_at(cell, std::nullopt, trace);
    for (size_t w = 0; w < kWarm.size(); ++w) {
      pays += on[w] < 0.99 * off[w] ? 1 : 0;
      harms += off[w] < 0.99 * on[w] ? 1 : 0;
      const double over = automatic[w] / std::min(off[w], on[w]) - 1;
      if (whole) {
        fmt::print("| {} | {} | {:.1f} | {:.1f} | {:.1f} | {:+.2f} % |\n", cell.name(), kWarm[w],
                   off[w] * 1e6, on[w] * 1e6, automatic[w] * 1e6, 100 * over);
      }
      EXPECT_LE(over, 0.005) << fmt::format(
          "{} | warm-up {}: auto {:.2f} us, depth 0 {:.2f}, depth 1 {:.2f}", cell.name(), kWarm[w],
          automatic[w] * 1e6, off[w] * 1e6, on[w] * 1e6);
    }
  }
  if (wanted != nullptr) return;
  EXPECT_GT(pays, 0);  // otherwise one constant would pass
  EXPECT_GT(harms, 0);
}

}  // namespace
}  // namespace fasa::testing
