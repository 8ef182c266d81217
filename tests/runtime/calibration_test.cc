// Calibration of the bundled model, from text to map, on both kinds of device.
#include "runtime/capture/calibration.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "offload/open_device.h"
#include "runtime/base/error.h"
#include "runtime/capture/attention_capture.h"
#include "runtime/capture/slice_index.h"
#include "tests/support/source_path.h"

namespace fasa {
namespace {

const std::string kModel = source_path("models/needle-3m");

struct Loaded {
  std::unique_ptr<Device> device;
  Model model;
};

Loaded load(const std::string& name, std::optional<uint64_t> host_memory = {},
            const std::string& path = kModel) {
  DeviceOptions options;
  options.name = name;
  options.host_memory = host_memory;
  auto device = open_device(options);
  Model model = Model::load(path, *device, DType::kF32);
  return {std::move(device), std::move(model)};
}

std::vector<int32_t> text_of(int64_t tokens) {
  const auto tokenizer = text::Tokenizer::load_if_present(kModel);
  return read_calibration_texts(default_calibration_texts(kModel), tokenizer.get(), tokens);
}

CalibrationOptions quick() {
  CalibrationOptions options;
  options.tokens = 500;
  options.queries = 12;
  options.tip_chunks = 4;
  options.prefill_chunk = 200;
  return options;
}

TEST(Calibration, AMapThatFitsItsModel) {
  Loaded loaded = load("cpu");
  int64_t ran = 0, ranked = 0;
  const auto progress = [&](CalibrationPhase phase, int64_t done, int64_t total) {
    EXPECT_LE(done, total);
    (phase == CalibrationPhase::kRunning ? ran : ranked) = done;
  };
  const FcMap map = calibrate(loaded.model, text_of(500), quick(), progress);
  EXPECT_EQ(ran, 500);
  EXPECT_EQ(ranked, 8);
  EXPECT_EQ(map.tokens, 500);
  EXPECT_EQ(map.queries, 12);
  EXPECT_EQ(map.window, default_calibration_window(500, 4, 16));
  EXPECT_TRUE(map.probes);
  map.require_fits(loaded.model.fingerprint(), "made here");
  EXPECT_EQ(FcMap::parse(map.to_json(), "made here").to_json(), map.to_json());
  EXPECT_EQ(map.slice_dims(32).size(), 4u * 2u * 64u);
  for (const auto& layer : map.heads) {
    for (const HeadRanking& head : layer) {
      EXPECT_NEAR(head.distant_attention_kept.back(), 1, 1e-4);
      EXPECT_EQ(head.energy.size(), 64u);
      EXPECT_NEAR(std::accumulate(head.energy.begin(), head.energy.end(), 0.0), 1, 1e-9);
    }
  }
}

TEST(Calibration, TheBundledMapHasEnergies) {
  for (const auto& layer : FcMap::load(kModel + "/fc_map.json").heads) {
    for (const HeadRanking& head : layer) EXPECT_EQ(head.energy.size(), 64u);
  }
}

// Interleaved pairs, some dimensions not rotated, none, and one head of all queries (MLA).
TEST(Calibration, EnergiesChooseFineChunksInEveryLayout) {
  std::vector<int32_t> text;
  for (int i = 0; i < 200; ++i) text.push_back(i * i * 7 % 61);
  CalibrationOptions options = quick();
  options.tokens = std::ssize(text);
  for (const char* path : {"models/pairs-400k", "models/partial-400k", "models/alibi-400k",
                           "tests/golden/deepseek-v2"}) {
    SCOPED_TRACE(path);
    Loaded loaded = load("cpu", {}, source_path(path));
    const FcMap map = calibrate(loaded.model, text, options);
    const int chunks = loaded.model.config().geometry().chunks();
    const std::vector<int16_t> dims = map.slice_dims(chunks, 2);
    auto dim = dims.begin();
    for (const auto& layer : map.heads) {
      for (const HeadRanking& head : layer) {
        ASSERT_EQ(std::ssize(head.energy), 2 * chunks);
        EXPECT_NEAR(std::accumulate(head.energy.begin(), head.energy.end(), 0.0), 1, 1e-9);
        std::vector<double> pairs;
        for (int chunk = 0; chunk < chunks; ++chunk, dim += 2) {
          pairs.push_back(head.energy[static_cast<size_t>(dim[0])] +
                          head.energy[static_cast<size_t>(dim[1])]);
        }
        EXPECT_GE(std::min(pairs[0], pairs[1]), *std::max_element(pairs.begin() + 2, pairs.end()));
      }
    }
  }
}

TEST(Calibration, ChunksAndDevicesGiveTheSameMap) {
  const std::vector<int32_t> text = text_of(300);
  CalibrationOptions options = quick();
  options.tokens = 300;
  Loaded cpu = load("cpu");
  const FcMap map = calibrate(cpu.model, text, options);
  options.prefill_chunk = 77;
  EXPECT_EQ(calibrate(cpu.model, text, options), map);
  Loaded emulated = load("emulated");
  EXPECT_EQ(calibrate(emulated.model, text, options), map);
}

TEST(Calibration, ThePassGivesItsMemoryBack) {
  Loaded loaded = load("emulated");
  CalibrationOptions options = quick();
  options.tokens = 200;
  calibrate(loaded.model, text_of(200), options);
  const uint64_t device = loaded.device->memory(MemorySpace::kDevice).used_bytes;
  const uint64_t host = loaded.device->memory(MemorySpace::kHost).used_bytes;
  calibrate(loaded.model, text_of(200), options);
  EXPECT_EQ(loaded.device->memory(MemorySpace::kDevice).used_bytes, device);
  EXPECT_EQ(loaded.device->memory(MemorySpace::kHost).used_bytes, host);
}

TEST(Calibration, ABudgetThatDoesNotSufficeIsAnErrorBeforeTheWork) {
  Loaded loaded = load("emulated", 1600000);
  EXPECT_THROW(calibrate(loaded.model, text_of(500), quick()), BudgetError);
}

TEST(Calibration, FromAPromptOfAnyLength) {
  Loaded loaded = load("cpu");
  const std::vector<int32_t> text = text_of(400);
  for (const size_t tokens : {1u, 3u, 40u, 400u}) {
    const std::span<const int32_t> prompt(text.data(), tokens);
    const FcMap map = calibrate_from_prompt(loaded.model, prompt, 4, 16);
    map.require_fits(loaded.model.fingerprint(), "made here");
    EXPECT_EQ(map.slice_dims(8).size(), 4u * 2u * 16u);
  }
}

TEST(Calibration, ImpossibleOptionsSayWhatIsAllowed) {
  const Geometry geometry = ModelConfig::load(kModel).geometry();
  const auto rejects = [&](auto change, const std::string& message) {
    CalibrationOptions options;
    change(options);
    try {
      options.validate(geometry, 8192);
      ADD_FAILURE() << message;
    } catch (const UsageError& error) {
      EXPECT_THAT(error.what(), ::testing::StartsWith(message));
    }
  };
  EXPECT_NO_THROW(CalibrationOptions().validate(geometry, 8192));
  rejects([](auto& o) { o.tokens = 8193; }, "tokens = 8193: allowed: 1 to 8192");
  rejects([](auto& o) { o.tokens = 0; }, "tokens = 0");
  rejects([](auto& o) { o.window = 20; }, "window = 20");
  rejects([](auto& o) { o.tip_chunks = 33; }, "tip_chunks = 33");
  rejects([](auto& o) { o.queries = 0; }, "queries = 0");
  rejects([](auto& o) { o.sinks = -1; }, "sinks = -1");
  rejects([](auto& o) { o.recent = 0; }, "recent = 0");
}

TEST(Calibration, WindowByLength) {
  EXPECT_EQ(default_calibration_window(4096, 4, 16), 256);
  EXPECT_EQ(default_calibration_window(100000, 4, 16), 256);
  EXPECT_EQ(default_calibration_window(960, 4, 16), 60);
  EXPECT_EQ(default_calibration_window(1, 4, 16), 52);
  EXPECT_EQ(default_calibration_window(1000, 300, 16), 348);
}

// Layer 2 shares the keys of layer 1.
Geometry sharing_geometry() {
  return {.layers = 3,
          .kv_heads = 2,
          .query_heads = 4,
          .key_dim = 8,
          .value_dim = 6,
          .rotary_dims = 8,
          .scale = 0.3f,
          .windows = {},
          .shared_layers = 1};
}

std::vector<float> numbers(int64_t count, int first) {
  std::vector<float> values;
  for (int64_t i = 0; i < count; ++i) {
    values.push_back(static_cast<float>((first + 37 * i) % 101) / 50.0f - 1);
  }
  return values;
}

TEST(AttentionCapture, ALayerThatSharesKeysHasThoseOfItsSource) {
  const Geometry g = sharing_geometry();
  constexpr int64_t kTokens = 20;
  AttentionCapture whole(g, kTokens, {3, 17}), last(g, kTokens, {3, 17}, {2, 3});
  for (AttentionCapture* capture : {&whole, &last}) {
    for (int layer = 0; layer < g.layers; ++layer) {
      const std::vector<float> q = numbers(kTokens * 4 * 8, layer),
                               k = numbers(kTokens * 2 * 8, 50 * layer);
      const auto view = [&](const std::vector<float>& values, int heads) {
        return ConstTensorView::dense(values.data(), DType::kF32, kTokens, heads, 8);
      };
      capture->on_layer(layer, view(q, 4), g.is_shared(layer) ? ConstTensorView() : view(k, 2), {},
                        0);
    }
  }
  for (int head = 0; head < 2; ++head) {
    const HeadSamples other = whole.take(0, head), source = whole.take(1, head),
                      shared = whole.take(2, head);
    EXPECT_NE(other.keys, source.keys);
    EXPECT_EQ(shared.keys, source.keys);
    EXPECT_NE(shared.queries, source.queries);
    const HeadSamples alone = last.take(2, head);
    EXPECT_EQ(alone.keys, shared.keys);
    EXPECT_EQ(alone.queries, shared.queries);
  }
}

TEST(SliceIndex, ALayerThatSharesKeysIsScoredOnThoseOfItsSource) {
  const Geometry g = sharing_geometry();
  Geometry copying = g;
  copying.shared_layers = 0;
  constexpr int64_t kTokens = 200;
  const SliceIndexShape shape{
      .chunks = 4, .sinks = 1, .recent = 2, .tokens = kTokens, .largest_set = 40};
  SliceIndex sharing(g, shape, all_slice_dims(g)), copies(copying, shape, all_slice_dims(g));
  for (int layer = 0; layer < g.layers; ++layer) {
    const int source = g.kv_layer(layer);
    const std::vector<float> k = numbers(kTokens * 2 * 8, source),
                             v = numbers(kTokens * 2 * 6, source);
    const auto keys = ConstTensorView::dense(k.data(), DType::kF32, kTokens, 2, 8);
    const auto values = ConstTensorView::dense(v.data(), DType::kF32, kTokens, 2, 6);
    copies.append(layer, keys, values, 0);
    if (g.is_shared(layer)) {
      sharing.append(layer, {}, {}, 0);
    } else {
      sharing.append(layer, keys, values, 0);
    }
  }
  for (int layer = 0; layer < g.layers; ++layer) {
    const std::vector<float> q = numbers(4 * 8, 11 * layer);
    for (SliceIndex* index : {&sharing, &copies}) {
      index->select(layer, ConstTensorView::dense(q.data(), DType::kF32, 1, 4, 8), kTokens - 1, 30);
    }
    for (int head = 0; head < 2; ++head) {
      EXPECT_TRUE(std::ranges::equal(sharing.set(head), copies.set(head))) << layer;
    }
  }
}

}  // namespace
}  // namespace fasa
