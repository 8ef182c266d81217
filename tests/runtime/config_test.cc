#include "runtime/config/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "offload/cuda/gpu_traits.h"
#include "runtime/api/settings.h"
#include "runtime/config/layer_budgets.h"

namespace fasa {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::string message_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

Geometry geometry_of(int layers, int key_dim) {
  return {.layers = layers,
          .kv_heads = 2,
          .query_heads = 4,
          .key_dim = key_dim,
          .value_dim = key_dim,
          .rotary_dims = key_dim,
          .scale = 0.125f,
          .windows = {}};
}

TEST(Config, DefaultsAreValidAndAreThoseOfTheDesign) {
  const Config config;
  config.validate();
  EXPECT_EQ(config.preset, "fasa-m");
  EXPECT_TRUE(config.selection.fac_tokens.empty());
  EXPECT_EQ(config.low_bit_tokens(32), (TokenCount{.tokens = 0, .share = 1}));
  EXPECT_EQ(config.selection.sinks, 4);
  EXPECT_EQ(config.selection.recent, 16);
  EXPECT_EQ(config.prefetch.streams, 2);
  EXPECT_FALSE(config.link.bandwidth);
  EXPECT_EQ(config.link.latency, 10e-6);
  EXPECT_FALSE(config.placement.hot_rows.has_value());
}

TEST(Config, PresetsSetSelectionAndPlacementOnly) {
  struct Expected {
    const char* name;
    SelectionKind kind;
    RowPlacement rows;
  };
  for (const auto& [name, kind, rows] :
       {Expected{"fasa-m", SelectionKind::kFasa, RowPlacement::kHost},
        Expected{"fasa-c", SelectionKind::kFasa, RowPlacement::kDevice},
        Expected{"full", SelectionKind::kFull, RowPlacement::kDevice}}) {
    Config config;
    config.preset = name;
    config.apply_preset();
    EXPECT_EQ(config.selection.kind, kind) << name;
    EXPECT_EQ(config.placement.rows, rows) << name;
  }
  Config config;
  config.preset = "fasa-x";
  EXPECT_EQ(message_of([&] { config.apply_preset(); }),
            "preset = \"fasa-x\": allowed: fasa-m, fasa-c, full");
}

TEST(Config, SlicePresetsAndWhatOverridesThem) {
  Config config;
  EXPECT_EQ(config.effective_slice_dtype(), SliceDType::kInt2);
  EXPECT_EQ(config.effective_tip_chunks(64), 64);
  config.selection.slice = SlicePreset::kPaper;
  EXPECT_EQ(config.effective_slice_dtype(), SliceDType::kBF16);
  EXPECT_EQ(config.effective_tip_chunks(64), 16);
  EXPECT_EQ(config.effective_tip_chunks(3), 1);  // at least one
  config.selection.slice = SlicePreset::kLean;
  EXPECT_EQ(config.effective_slice_dtype(), SliceDType::kInt2);
  EXPECT_EQ(config.effective_tip_chunks(64), 32);
  EXPECT_EQ(config.effective_tip_chunks(1), 1);
  config.selection.slice_dtype = SliceDType::kInt8;
  config.selection.tip_chunks = 5;
  EXPECT_EQ(config.effective_slice_dtype(), SliceDType::kInt8);
  EXPECT_EQ(config.effective_tip_chunks(64), 5);
}

TEST(Config, AutomaticFacTokensFollowTheLengthAndTheCodes) {
  Config config;
  const auto rows = [&](int32_t visible) {
    return budget_of(config.fac_tokens(32).front()).of(visible, 21);
  };
  EXPECT_EQ(rows(100), 100);
  EXPECT_EQ(rows(320), 320);
  EXPECT_EQ(rows(5120), 320);
  EXPECT_EQ(rows(8190), 512);
  EXPECT_EQ(rows(16384), 1024);
  EXPECT_EQ(rows(1 << 20), 1024);
  config.selection.slice = SlicePreset::kFine;
  EXPECT_EQ(config.effective_slice_dtype(), SliceDType::kInt4);
  EXPECT_EQ(config.effective_value_codes(), SliceDType::kInt4);
  EXPECT_EQ(rows(1 << 20), 128);
  config.selection.low_bit_tokens = {.tokens = 500, .share = 0};
  EXPECT_EQ(rows(1 << 20), 1024);
  config.selection.low_bit_tokens.reset();
  config.selection.value_codes = SliceDType::kInt2;
  EXPECT_EQ(rows(1 << 20), 1024);
  config.selection.fac_tokens = {{.tokens = 40, .share = 0}};
  EXPECT_EQ(rows(1 << 20), 40);
}

TEST(Config, FacTokensBelowTheProtectedOnesPlusOneIsAnError) {
  Config config;
  config.selection.fac_tokens = {{.tokens = 21, .share = 0}};
  config.validate();
  config.selection.fac_tokens = {{.tokens = 20, .share = 0}};
  EXPECT_EQ(message_of([&] { config.validate(); }),
            "selection.fac_tokens = 20: allowed: at least sinks + recent + 1 = 4 + 16 + 1 = 21; "
            "lower sinks or recent, or raise fac_tokens");
  config.selection.recent = 1;
  config.validate();
  config.selection.fac_tokens = {{.tokens = 256, .share = 0}, {.tokens = 5, .share = 0}};
  EXPECT_NE(message_of([&] { config.validate(); }), "");  // every layer's budget is checked
  config.selection.fac_tokens = {{.tokens = 0, .share = 0.001}};
  config.validate();  // each step raises a share to the protected tokens plus one
}

TEST(Config, RangesAreChecked) {
  const auto rejects = [](const std::string& key, const std::function<void(Config&)>& change) {
    Config config;
    change(config);
    const std::string message = message_of([&] { config.validate(); });
    EXPECT_EQ(message.rfind(key + " = ", 0), 0u) << key << " gave: " << message;
  };
  rejects("device.threads", [](Config& c) { c.device.threads = -1; });
  rejects("device.threads", [](Config& c) { c.device.threads = 1025; });
  rejects("device.numa", [](Config& c) { c.device.numa = "near"; });
  rejects("device.numa", [](Config& c) { c.device.numa = "-1"; });
  rejects("device.numa", [](Config& c) { c.device.numa = "1x"; });
  rejects("selection.sinks", [](Config& c) { c.selection.sinks = -1; });
  rejects("selection.recent", [](Config& c) { c.selection.recent = 0; });
  rejects("selection.fac_tokens", [](Config& c) { c.selection.fac_tokens = {{0, 1.5}}; });
  rejects("selection.tip_chunks", [](Config& c) { c.selection.tip_chunks = 0; });
  rejects("selection.dense_layers", [](Config& c) { c.selection.dense_layers = {-1}; });
  rejects("selection.low_bit_tokens", [](Config& c) { c.selection.low_bit_tokens = {-1, 0}; });
  rejects("selection.low_bit_tokens", [](Config& c) { c.selection.low_bit_tokens = {0, 1.5}; });
  rejects("selection.value_codes", [](Config& c) { c.selection.value_codes = SliceDType::kBF16; });
  rejects("placement.hot_rows", [](Config& c) { c.placement.hot_rows = -1; });
  rejects("prefetch.depth", [](Config& c) { c.prefetch.depth = -1; });
  rejects("prefetch.streams", [](Config& c) { c.prefetch.streams = 0; });
  rejects("link.bandwidth", [](Config& c) { c.link.bandwidth = 0; });
  rejects("link.latency", [](Config& c) { c.link.latency = -1; });
}

TEST(Config, LowBitTokensNeedScoresOfWholeKeysHeadByHead) {
  const auto message = [](const std::function<void(Config&)>& change) {
    Config config;
    config.selection.low_bit_tokens = {.tokens = 512, .share = 0};
    config.validate();
    change(config);
    return message_of([&] {
      config.validate();
      config.validate_for(geometry_of(3, 64));
    });
  };
  EXPECT_EQ(message([](Config&) {}), "");
  EXPECT_EQ(message([](Config& c) { c.selection.kind = SelectionKind::kFull; }), "") << "ignored";
  EXPECT_EQ(message([](Config& c) { c.selection.slice_dtype = SliceDType::kInt4; }), "");
  EXPECT_EQ(message([](Config& c) { c.selection.kind = *find_selection("quest"); }),
            "selection.low_bit_tokens = 512: allowed: 0 with selection.kind = quest");
  EXPECT_EQ(message([](Config& c) { c.selection.slice = SlicePreset::kLean; }),
            "selection.low_bit_tokens = 512: allowed: 0 with slices of 16 of 32 frequency chunks, "
            "whose scores are not attention weights; other values need slices of all chunks, or as "
            "many in int4 (fine_chunks) as are left out");
}

TEST(Config, FineChunks) {
  const auto message = [](std::optional<int> tip_chunks, int fine_chunks, auto change) {
    Config config;
    config.selection.tip_chunks = tip_chunks;
    config.selection.fine_chunks = fine_chunks;
    change(config.selection);
    return message_of([&] {
      config.validate();
      config.validate_for(geometry_of(3, 64));
      EXPECT_TRUE(config.ranks_chunks(32));
      EXPECT_TRUE(config.has_low_bit_set(32));
    });
  };
  const auto nothing = [](Config::Selection&) {};
  EXPECT_EQ(message({}, 4, nothing), "");
  EXPECT_EQ(message({}, 32, nothing), "");
  EXPECT_EQ(message(28, 4, nothing), "");  // as many in four bits as in none
  EXPECT_EQ(message({}, 33, nothing),
            "selection.fine_chunks = 33: allowed: 0 to 32, the frequency chunks in the slices");
  EXPECT_THAT(message({}, -1, nothing), HasSubstr("selection.fine_chunks = -1"));
  EXPECT_EQ(message({}, 4, [](Config::Selection& s) { s.slice = SlicePreset::kFine; }),
            "selection.fine_chunks = 4: allowed: 0 with slices in int4; other values need int2");
  EXPECT_THAT(
      message(27, 4, [](Config::Selection& s) { s.low_bit_tokens = {.tokens = 0, .share = 1}; }),
      HasSubstr("0 with slices of 27 of 32 frequency chunks"));
  Config left_out;
  left_out.selection.tip_chunks = 27;
  left_out.selection.fine_chunks = 4;
  EXPECT_FALSE(left_out.has_low_bit_set(32));
  EXPECT_FALSE(Config().ranks_chunks(32));
}

// The 16 query heads of MLA's one KV head, and both parts of fine dimensions, in a block's memory.
TEST(Config, FineChunksThatGpuKernelsDoNotHold) {
  Geometry geometry = geometry_of(1, 576);
  geometry.kv_heads = 1, geometry.query_heads = 16, geometry.value_dim = 512;
  const auto message = [&](int fine_chunks, const DeviceTraits& traits) {
    Config config;
    config.selection.fine_chunks = fine_chunks;
    return message_of([&] { make_step_settings(config, geometry, DType::kBF16, traits, 4096); });
  };
  EXPECT_EQ(message(72, gpu_traits(80)), "");
  EXPECT_EQ(message(288, kHostTraits), "");
  EXPECT_THAT(message(288, gpu_traits(80)),
              AllOf(HasSubstr("16 query heads per KV head with slices of 1152 dimensions"),
                    HasSubstr("allowed: fewer tip_chunks or fine_chunks")));
}

TEST(Config, LowBitTokensHaveADefault) {
  constexpr int64_t kAll = -1;
  const auto decided = [](const std::function<void(Config&)>& change) {
    Config config;
    change(config);
    config.validate();
    config.validate_for(geometry_of(3, 64));
    const TokenCount low_bit = config.low_bit_tokens(geometry_of(3, 64).chunks());
    return low_bit.share == 1 ? kAll : low_bit.tokens;
  };
  EXPECT_EQ(decided([](Config& c) { c.preset = "fasa-c", c.apply_preset(); }), kAll);
  EXPECT_EQ(decided([](Config& c) { c.selection.slice_dtype = SliceDType::kBF16; }), kAll);
  EXPECT_EQ(decided([](Config& c) { c.selection.low_bit_tokens = {.tokens = 5, .share = 0}; }), 5);
  EXPECT_EQ(decided([](Config& c) { c.selection.low_bit_tokens = TokenCount{}; }), 0);
  EXPECT_EQ(decided([](Config& c) { c.preset = "full", c.apply_preset(); }), 0);
  EXPECT_EQ(decided([](Config& c) { c.selection.kind = *find_selection("quest"); }), 0);
  EXPECT_EQ(decided([](Config& c) { c.selection.slice = SlicePreset::kLean; }), 0);
  EXPECT_EQ(decided([](Config& c) { c.selection.fac_tokens = {{.tokens = 0, .share = 1}}; }), 0)
      << "the set leaves nothing out";
}

TEST(Config, WhatTheModelDoesNotHaveIsAnError) {
  const Geometry geometry = geometry_of(3, 64);
  Config config;
  config.validate_for(geometry);
  config.selection.tip_chunks = 32;
  config.validate_for(geometry);
  config.selection.tip_chunks = 33;
  EXPECT_EQ(message_of([&] { config.validate_for(geometry); }),
            "selection.tip_chunks = 33: allowed: 1 to 32, the frequency chunks of this model's "
            "heads");
  config = Config{};
  config.selection.dense_layers = {2};
  config.validate_for(geometry);
  config.selection.dense_layers = {3};
  EXPECT_EQ(message_of([&] { config.validate_for(geometry); }),
            "selection.dense_layers = 3: allowed: layers of this model, 0 to 2");
  config = Config{};
  config.prefetch.depth = 3;
  config.validate_for(geometry);
  config.prefetch.depth = 4;
  EXPECT_EQ(message_of([&] { config.validate_for(geometry); }),
            "prefetch.depth = 4: allowed: auto, or layers ahead within this model, 0 to 3");
  config = Config{};
  Geometry capped = geometry;
  capped.score_cap = 50;
  config.validate_for(capped);
  config.selection.kind = find_selection("snapkv").value();
  config.validate_for(geometry);
  EXPECT_EQ(
      message_of([&] { config.validate_for(capped); }),
      "selection.kind = \"snapkv\": allowed: for a model with a soft cap of scores: fasa with "
      "its default rules, full");
  config = Config{};
  config.selection.fac_tokens.assign(3, {.tokens = 256, .share = 0});
  config.validate_for(geometry);
  config.selection.fac_tokens.assign(2, {.tokens = 256, .share = 0});
  EXPECT_NE(message_of([&] { config.validate_for(geometry); }), "");
}

TEST(Config, SnapshotsOfStatesAreChecked) {
  Config config;
  for (const int interval : {64, 16384, 1 << 20}) {
    config.memory.snapshots.interval = interval;
    config.validate();
  }
  for (const int interval : {0, -64, 63, 100, (1 << 20) + 64}) {
    config.memory.snapshots.interval = interval;
    EXPECT_NE(message_of([&] { config.validate(); }), "") << interval;
  }
  config.memory.snapshots = {.interval = 128, .turns = -1};
  EXPECT_NE(message_of([&] { config.validate(); }), "");
  config.memory.snapshots.turns = 0;
  config.validate();
}

TEST(Config, DeviceOptionsCarryEverything) {
  Config config;
  config.device = {.name = "emulated", .gpu = "RTX 4090", .threads = 3, .numa = "1"};
  config.memory.device_memory = 10;
  config.memory.host_memory = 20;
  config.memory.pinned_memory = 30;
  config.link = {.bandwidth = 1e9, .latency = 2e-6};
  const DeviceOptions options = config.device_options();
  EXPECT_EQ(options.name, "emulated");
  EXPECT_EQ(options.memory_bandwidth, 1008e9);
  EXPECT_EQ(options.threads, 3);
  EXPECT_EQ(options.numa.kind, NumaPolicy::Kind::kNode);
  EXPECT_EQ(options.numa.node, 1);
  EXPECT_EQ(options.device_memory, 10u);
  EXPECT_EQ(options.host_memory, 20u);
  EXPECT_EQ(options.pinned_memory, 30u);
  EXPECT_EQ(options.link_bandwidth, 1e9);
  EXPECT_EQ(options.link_latency, 2e-6);
  config.device.numa = "interleave";
  EXPECT_EQ(config.device_options().numa.kind, NumaPolicy::Kind::kInterleave);
}

}  // namespace
}  // namespace fasa
