#include "tests/simulation/drawn_setup.h"

#include <fmt/format.h>

#include <algorithm>

#include "tests/simulation/draw.h"
#include "tests/simulation/plain_cache.h"

namespace fasa::testing {
namespace {

Geometry drawn_geometry(Draw& draw) {
  Geometry geometry;
  geometry.layers = static_cast<int>(draw.between(1, 3));
  geometry.kv_heads = static_cast<int>(draw.between(1, 2));
  geometry.query_heads = geometry.kv_heads * static_cast<int>(draw.between(1, 3));
  geometry.key_dim = draw.of({4, 8, 12, 16});
  geometry.value_dim = draw.of({4, 7, 12, 16});
  geometry.rotary_dims = geometry.key_dim;
  geometry.scale = 0.25f;
  if (draw.one_in(4)) {
    for (int layer = 0; layer < geometry.layers; ++layer) {
      geometry.windows.push_back(draw.of({0, 37, 64, 90}));
    }
  }
  if (draw.one_in(6)) {
    for (int head = 0; head < geometry.query_heads; ++head) {
      geometry.alibi_slopes.push_back(1.0f / static_cast<float>(8 << head));
    }
  }
  return geometry;
}

// Widens to the sizes that coded rows require: one KV head, kMaxWidth.
void widen(Geometry& geometry) {
  geometry.query_heads = geometry.gqa_group();
  geometry.kv_heads = 1;
  geometry.key_dim = geometry.value_dim = geometry.rotary_dims = kFewestCoded;
  if (!geometry.alibi_slopes.empty()) {
    geometry.alibi_slopes.resize(static_cast<size_t>(geometry.query_heads));
  }
}

void draw_selection(Draw& draw, const Geometry& geometry, Config::Selection& selection) {
  selection.kind = draw.one_in(8) ? SelectionKind::kFull : SelectionKind::kFasa;
  selection.slice_dtype = draw.of({SliceDType::kInt2, SliceDType::kInt2, SliceDType::kInt4,
                                   SliceDType::kInt8, SliceDType::kBF16});
  selection.tip_chunks = static_cast<int>(draw.between(1, geometry.chunks()));
  selection.sinks = static_cast<int>(draw.between(0, 3));
  selection.recent = static_cast<int>(draw.between(1, 6));
  const int64_t least = selection.sinks + selection.recent + 1;
  selection.fac_tokens = {{.tokens = least + draw.of({0, 5, 20, 30, 70}), .share = 0}};
  if (draw.one_in(8)) selection.fac_tokens = {{.tokens = 0, .share = 0.25}};
  if (geometry.layers > 1 && draw.one_in(5)) {
    selection.dense_layers = {static_cast<int>(draw.below(geometry.layers))};
  }
  if (selection.kind == SelectionKind::kFasa && draw.one_in(8)) {
    const int more = draw.of({8, 16, 32});
    selection.recent += more;
    if (selection.fac_tokens[0].tokens > 0) selection.fac_tokens[0].tokens += more;
  }
}

// Needs slices of all FCs. Uses its own generator, so that a seed without a low-bit set gives the
// same run as before low-bit sets existed.
void draw_low_bit_set(Draw draw, const Geometry& geometry, Config::Selection& selection) {
  selection.low_bit_tokens = TokenCount{};
  if (selection.kind != SelectionKind::kFasa || !draw.one_in(3)) return;
  selection.tip_chunks = geometry.chunks();
  selection.low_bit_tokens = {.tokens = draw.of({1, 5, 20, 32, 40, 70, 400}), .share = 0};
  if (draw.one_in(3)) {
    selection.low_bit_tokens = {.tokens = 0,
                                .share = draw.of({0.01, 0.1, 0.25, 0.5, 0.9, 1.0, 1.0, 1.0})};
  }
  selection.value_codes = draw.of({SliceDType::kInt2, SliceDType::kInt4, SliceDType::kInt8});
}

// FCs in four bits, where others have two. Its own generator, as above.
void draw_fine_chunks(Draw draw, Config::Selection& selection) {
  if (selection.slice_dtype != SliceDType::kInt2 || !draw.one_in(3)) return;
  selection.fine_chunks = static_cast<int>(draw.between(1, *selection.tip_chunks));
}

// Only layers with a window free pages. Its own generator, as above.
void draw_rollback_windows(Draw draw, DrawnSetup& setup) {
  setup.rollback_windows = !setup.geometry.windows.empty() && draw.one_in(2);
  if (setup.rollback_windows) setup.max_tokens = kMaxTokens;
}

// The last layers share keys and values. Its own generator, as above.
void draw_sharing(Draw draw, Geometry& geometry) {
  if (geometry.layers == 1 || !draw.one_in(4)) return;
  const auto possible = [&] {
    return geometry.kv_layer(geometry.layers - 1) >= 0 &&
           geometry.kv_layer(geometry.storing_layers()) >= 0;
  };
  geometry.shared_layers = static_cast<int>(draw.between(1, geometry.layers - 1));
  while (geometry.shared_layers > 0 && !possible()) --geometry.shared_layers;
}

// Heads of another shape in layers with a window, if there are others. Its own generator, as above.
void draw_window_heads(Draw draw, bool coded, Geometry& geometry) {
  const auto without = std::count(geometry.windows.begin(), geometry.windows.end(), 0);
  const bool mixed = without > 0 && without < std::ssize(geometry.windows);
  if (!mixed || draw.one_in(3)) return;
  const int group = geometry.query_heads % 2 == 0 ? draw.of({1, 2, geometry.query_heads})
                                                  : draw.of({1, geometry.query_heads});
  const int key_dim = coded ? kFewestCoded : draw.of({6, 8, 14, 16});
  geometry.window_heads = {.kv_heads = geometry.query_heads / group,
                           .key_dim = key_dim,
                           .value_dim = coded ? kFewestCoded : draw.of({5, 8, 15, 16}),
                           .rotary_dims = key_dim};
}

// Layers with a state beside those with rows. Its own generator, as above.
void draw_linear(Draw draw, DrawnSetup& setup) {
  if (!draw.one_in(4)) return;
  const int key_heads = static_cast<int>(draw.between(1, 2));
  setup.geometry.linear = {.layers = static_cast<int>(draw.between(1, 2)),
                           .key_heads = key_heads,
                           .value_heads = key_heads * static_cast<int>(draw.between(1, 2)),
                           .key_dim = draw.of({3, 4, 8}),
                           .value_dim = draw.of({5, 8}),
                           .taps = static_cast<int>(draw.between(2, 4)),
                           .dtype = draw.of({DType::kF32, DType::kBF16}),
                           .heads_by_turns = draw.one_in(2)};
  setup.config.memory.snapshots = {.interval = draw.of({64, 64, 128, 16384}),
                                   .turns = draw.of({0, 1, 2, 2, 5})};
}

// Decode steps of several tokens, of which some may be dropped. Its own generator, as above.
void draw_drafts(Draw draw, DrawnSetup& setup) {
  setup.drafts = draw.one_in(2);
  setup.unified = setup.drafts && draw.one_in(3);
  if (!setup.unified) return;
  setup.config.placement.rows = RowPlacement::kDevice;
  setup.prediction_source = DrawnSource::kNone;
}

void draw_placement(Draw& draw, Config::Placement& placement) {
  placement.rows = draw.of({RowPlacement::kHost, RowPlacement::kHost, RowPlacement::kHost,
                            RowPlacement::kAuto, RowPlacement::kAuto, RowPlacement::kDevice});
  const int hot_rows = draw.of({-1, 0, 1, 10, 24, 40, 64, 100, 400});
  if (hot_rows >= 0) placement.hot_rows = hot_rows;
}

void draw_prefetch(Draw& draw, int layers, Config::Prefetch& prefetch) {
  const int depth = draw.of({-1, 0, 1, 2});
  if (depth >= 0) prefetch.depth = std::min(depth, layers - 1);
  prefetch.predictor =
      draw.of({PredictorKind::kAuto, PredictorKind::kAuto, PredictorKind::kRunnersUp});
  prefetch.streams = static_cast<int>(draw.between(1, 3));
  const int head_groups = draw.of({0, 1, 2, 4});
  if (head_groups > 0) prefetch.head_groups = head_groups;
}

std::vector<int16_t> drawn_dims(Draw& draw, const Geometry& geometry, int chunks) {
  std::vector<int16_t> dims;
  for (int head = 0; head < geometry.layers * geometry.kv_heads; ++head) {
    const int64_t first = draw.below(geometry.chunks());
    for (int i = 0; i < chunks; ++i) {
      const int chunk = static_cast<int>((first + i) % geometry.chunks());
      const Geometry::Pair pair = geometry.chunk_dims(chunk);
      dims.push_back(static_cast<int16_t>(pair.first));
      dims.push_back(static_cast<int16_t>(pair.second));
    }
  }
  return dims;
}

}  // namespace

DrawnSetup drawn_setup(uint64_t seed) {
  Draw draw(seed, UINT64_MAX);
  DrawnSetup setup;
  setup.geometry = drawn_geometry(draw);
  draw_selection(draw, setup.geometry, setup.config.selection);
  draw_placement(draw, setup.config.placement);
  setup.prediction_source =
      draw.of({DrawnSource::kNone, DrawnSource::kQueries, DrawnSource::kAnything});
  draw_prefetch(draw, setup.geometry.layers, setup.config.prefetch);
  setup.row_dtype = draw.of({RowDType::kBF16, RowDType::kInt8, RowDType::kF32, RowDType::kF16});
  if (setup.row_dtype.is_coded()) widen(setup.geometry);
  draw_low_bit_set({seed, UINT64_MAX - 1}, setup.geometry, setup.config.selection);
  draw_fine_chunks({seed, UINT64_MAX - 6}, setup.config.selection);
  draw_rollback_windows({seed, UINT64_MAX - 2}, setup);
  draw_linear({seed, UINT64_MAX - 3}, setup);
  draw_sharing({seed, UINT64_MAX - 4}, setup.geometry);
  draw_window_heads({seed, UINT64_MAX - 5}, setup.row_dtype.is_coded(), setup.geometry);
  draw_drafts({seed, UINT64_MAX - 7}, setup);
  setup.slice_dims = drawn_dims(draw, setup.geometry, *setup.config.selection.tip_chunks);
  constexpr uint64_t kRoom = uint64_t{64} << 20;  // more than any run needs
  if (!draw.one_in(3)) setup.device_memory = kRoom;
  if (draw.one_in(3)) setup.host_memory = kRoom;
  setup.new_memory = draw.of({0, 0xff});
  if (draw.one_in(4)) setup.pinned_memory = kRoom;
  return setup;
}

namespace {

std::string low_bit_text(const Config::Selection& selection) {
  const TokenCount& low_bit = *selection.low_bit_tokens;
  if (!low_bit.any()) return "";
  return fmt::format(" and {} low-bit by {}",
                     low_bit.tokens > 0 ? fmt::to_string(low_bit.tokens)
                                        : fmt::format("a share of {}", low_bit.share),
                     slice_dtype_name(*selection.value_codes));
}

std::string window_heads_text(const HeadShape& heads) {
  if (heads.kv_heads == 0) return "";
  return fmt::format(" with {} KV heads, keys {}, values {}", heads.kv_heads, heads.key_dim,
                     heads.value_dim);
}

}  // namespace

std::string describe(const DrawnSetup& setup) {
  const Geometry& g = setup.geometry;
  const Config& config = setup.config;
  return fmt::format(
      "{} layers, {} KV heads, {} query heads, keys {}, values {}{}{}{}{}; {} {} x{} ({} in int4), "
      "{} tokens{}, "
      "sinks "
      "{}, recent {}{}; rows {} {}, {} hot rows, depth {}, predictor {}, {} lanes, "
      "{} groups of heads, "
      "prediction_source {}{}{}{}{}{}",
      g.layers, g.kv_heads, g.query_heads, g.key_dim, g.value_dim,
      g.windows.empty()        ? ""
      : setup.rollback_windows ? ", windows, rollback windows"
                               : ", windows",
      window_heads_text(g.window_heads), g.alibi_slopes.empty() ? "" : ", ALiBi",
      g.shared_layers > 0 ? fmt::format(", the last {} share rows", g.shared_layers) : "",
      config.selection.kind == SelectionKind::kFull ? "full" : "fasa",
      slice_dtype_name(*config.selection.slice_dtype), *config.selection.tip_chunks,
      config.effective_fine_chunks(), config.selection.fac_tokens[0].tokens,
      low_bit_text(config.selection), config.selection.sinks, config.selection.recent,
      config.selection.dense_layers.empty() ? "" : ", a dense layer",
      row_dtype_name(setup.row_dtype), static_cast<int>(config.placement.rows),
      config.placement.hot_rows.value_or(-1), config.prefetch.depth.value_or(-1),
      static_cast<int>(config.prefetch.predictor), config.prefetch.streams,
      config.prefetch.head_groups.value_or(0), static_cast<int>(setup.prediction_source),
      g.linear.layers > 0
          ? fmt::format(", {} layers with linear attention, snapshots each {} and of {} turns",
                        g.linear.layers, config.memory.snapshots.interval,
                        config.memory.snapshots.turns)
          : "",
      setup.drafts ? setup.unified ? ", drafts on one tier" : ", drafts" : "",
      setup.device_memory ? ", device limit" : "", setup.host_memory ? ", host limit" : "",
      setup.pinned_memory ? ", pinned limit" : "");
}

}  // namespace fasa::testing
