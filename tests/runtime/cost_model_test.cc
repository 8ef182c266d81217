// The cost model against values computed by hand, and against the emulated device's clock for real
// steps.
#include "runtime/plan/cost_model.h"

#include <gtest/gtest.h>

#include "kernels/kernel_work.h"
#include "runtime/api/memory_estimate.h"
#include "runtime/api/settings.h"
#include "scheduler/plan/low_bit_work.h"
#include "tests/support/filled_runtime.h"

namespace fasa::bench {
namespace {

constexpr int kLayers = 2;
constexpr MachineRates kRates{};

Config config_of(const char* preset, int k = 256) {
  Config config;
  config.preset = preset;
  config.apply_preset();
  config.selection.fac_tokens = {{.tokens = k, .share = 0}};
  return config;
}

StepSettings settings_of(const Config& config, int64_t tokens) {
  return make_step_settings(config, llama_8b(kLayers), DType::kBF16, kEmulatedTraits, tokens);
}

CostModel model_of(const Config& config, int64_t tokens) {
  return {settings_of(config, tokens), kRates, tokens};
}

TEST(CostModel, RowsOnTheDeviceAreSummedKernels) {
  constexpr int64_t kTokens = 6400;
  const CacheLayout layout = settings_of(config_of("fasa-c"), kTokens).layout;
  const CostTerms terms = model_of(config_of("fasa-c"), kTokens).layer(0, {.tokens = kTokens});
  const LowBitWork work = low_bit_work(settings_of(config_of("fasa-c"), kTokens), 0, kTokens);
  const uint64_t scoring = select_bytes(layout.slice, 0, kTokens) + work.select;
  EXPECT_DOUBLE_EQ(terms.scoring, kRates.scored(8 * scoring));
  const uint64_t attended = 8 * 256 * 512 + 8 * work.attend + 32 * 128 * 2;
  EXPECT_NEAR(terms.attention, kRates.attended(attended), 1e-12);
  const KernelCosts& calls = kRates.kernels;
  EXPECT_DOUBLE_EQ(terms.launches,
                   2 * calls.launch + calls.select_seconds(256, 0, 0) + calls.attend);
  EXPECT_EQ(terms.wait, 0);
  EXPECT_EQ(terms.transfer, 0);
  EXPECT_EQ(terms.hidden(), 1);
}

TEST(CostModel, TheWholeSetIsNotScored) {
  const CostTerms terms =
      model_of(config_of("fasa-m"), 200).layer(0, {.tokens = 200, .hit_rate = 1});
  EXPECT_EQ(terms.scoring, 0);
  EXPECT_EQ(terms.used_bytes, 0u);
}

TEST(CostModel, FullAttentionReadsEveryRow) {
  const CostTerms terms = model_of(config_of("full"), 40000).layer(0, {.tokens = 40000});
  EXPECT_NEAR(terms.attention, kRates.attended(40000 * 8 * 512 + 32 * 128 * 2), 1e-12);
  const KernelCosts& calls = kRates.kernels;  // waves of 16384
  EXPECT_DOUBLE_EQ(terms.launches, calls.launch + 3 * calls.attend);
}

// Wherever the other layers' rows are.
TEST(CostModel, AWindowBesideLayersThatSeeEverythingIsReadOnTheDevice) {
  Geometry geometry = llama_8b(kLayers);
  geometry.windows = {512, 0};
  for (const char* preset : {"fasa-m", "fasa-c"}) {
    const CostModel model(
        make_step_settings(config_of(preset), geometry, DType::kBF16, kEmulatedTraits, 40000),
        kRates, 40000);
    const CostTerms terms = model.layer(0, {.tokens = 40000, .hit_rate = 0.5});
    EXPECT_NEAR(terms.attention, kRates.attended(512 * 8 * 512 + 32 * 128 * 2), 1e-12);
    EXPECT_DOUBLE_EQ(terms.launches, kRates.kernels.launch + kRates.kernels.attend) << preset;
    EXPECT_EQ(terms.scoring, 0) << preset;
    EXPECT_EQ(terms.used_bytes, 0u) << preset;
    EXPECT_EQ(terms.wait, 0) << preset;
  }
}

TEST(CostModel, MissesAreWaitedForAndPrefetchHidesThem) {
  constexpr int64_t kTokens = 131072;
  MachineRates slow = kRates;
  slow.link_bandwidth = 10e9;  // scoring does not hide all
  const CostModel model(settings_of(config_of("fasa-m", 2048), kTokens), slow, kTokens);
  const StepLoad load{.tokens = kTokens, .hit_rate = 0.5};
  const CostTerms none = model.layer(0, load);
  EXPECT_EQ(none.used_bytes, uint64_t{8} * 1024 * 512);
  // The first heads' rows are transferred while the other heads are scored and the first are
  // attended to.
  const double transfer = 8 * 1024 * 512 / slow.link_bandwidth + slow.link_latency;
  EXPECT_LT(none.wait, transfer - none.scoring / 2);
  EXPECT_GT(none.wait, transfer - none.scoring - none.attention - none.launches);
  // All heads in one group and no codes to attend to: nothing is transferred meanwhile.
  Config together = config_of("fasa-m", 2048);
  together.selection.low_bit_tokens = TokenCount{};
  together.prefetch.head_groups = 1;
  const CostModel whole = model_of(together, kTokens);
  EXPECT_GT(whole.layer(0, load).wait, 8 * 1024 * 512 / 25e9 + kRates.link_latency);
  const CostTerms all = whole.layer(0, load, PrefetchLoad{.coverage = 1, .overfetch = 1});
  EXPECT_LT(all.wait, 1.2 * kRates.kernels.resolve_seconds(4096));  // the look-up
  EXPECT_GT(all.hidden(), 0.85);  // all but the look-up, which reads 4096 slots
  const CostTerms most = whole.layer(0, load, PrefetchLoad{.coverage = 0.9, .overfetch = 1.5});
  EXPECT_GT(most.wait, all.wait);
  EXPECT_LT(most.wait, whole.layer(0, load).wait);
  EXPECT_NEAR(static_cast<double>(most.wasted_bytes), 0.45 * static_cast<double>(none.used_bytes),
              1e-3 * static_cast<double>(none.used_bytes));
}

TEST(CostModel, ALinkThatIsTooSlowHoldsUpPrefetchToo) {
  MachineRates slow = kRates;
  slow.link_bandwidth = 0.5e9;
  const CostModel model(settings_of(config_of("fasa-m"), 131072), slow, 131072);
  const CostTerms terms = model.layer(0, {.tokens = 131072, .hit_rate = 0.5},
                                      PrefetchLoad{.coverage = 1, .overfetch = 1.25});
  EXPECT_NEAR(terms.total(), 1.25 * 8 * 128 * 512 / 0.5e9, 1e-6);
}

TEST(CostModel, HitRateFromOverlap) {
  const CostModel model = model_of(config_of("fasa-m"), 131072);
  EXPECT_NEAR(model.hit_rate(0.5, 131072), (20 + 118.0) / 256, 1e-9);
  EXPECT_EQ(model.hit_rate(0, 400), 1);  // fewer tokens than hot rows
  EXPECT_EQ(model_of(config_of("fasa-c"), 131072).hit_rate(0, 131072), 1);
  Config none = config_of("fasa-m");
  none.placement.hot_rows = 0;
  EXPECT_NEAR(model_of(none, 131072).hit_rate(0.5, 131072), 20.0 / 256, 1e-9);
}

TEST(CostModel, WeightsAreReadOnce) {
  const CostModel model = model_of(config_of("fasa-c"), 8192);
  const WeightLoad weights{.layer_bytes = 300'000'000,
                           .head_bytes = 600'000'000,
                           .hidden_bytes = 16384,
                           .logit_bytes = 512000};
  const CostTerms terms = model.step({.tokens = 8192}, {}, weights);
  EXPECT_NEAR(terms.weights, 1.2e9 / kRates.memory_bandwidth, 1e-12);
  EXPECT_GT(terms.total(), model.step({.tokens = 8192}).total() + terms.weights);
}

// Results of real steps on the emulated device, timed by its clock.
struct Measured {
  double seconds = 0;  // per step
  double hit_rate = 0;
};

struct Case {
  const char* name;
  const char* preset;
  int64_t tokens;
  std::optional<int> hot_rows;
  RowPlacement rows;
  double link_bandwidth;
  TokenCount low_bit_tokens = {};
};

std::ostream& operator<<(std::ostream& out, const Case& c) { return out << c.name; }

class Prediction : public ::testing::TestWithParam<Case> {
 protected:
  static Config config() {
    Config config = config_of(GetParam().preset);
    config.device.name = "emulated";
    config.placement.hot_rows = GetParam().hot_rows;
    config.placement.rows = GetParam().rows;
    config.selection.low_bit_tokens = GetParam().low_bit_tokens;
    config.link.bandwidth = GetParam().link_bandwidth;
    config.prefetch.depth = 0;  // the predicted step has none
    return config;
  }

  // A step's queries change by little, so its set overlaps with that of the step before.
  static Measured measure(FilledRuntime& filled, int steps) {
    Device& device = filled.device();
    const Geometry g = filled.runtime().geometry();
    const std::vector<uint16_t> kv = random_bf16(8 * 128, 3);
    Buffer kv_device = device.allocate(MemorySpace::kDevice, kv.size() * 2, "test keys");
    Buffer q_device = device.allocate(MemorySpace::kDevice, 32 * 128 * 4, "test queries");
    Buffer out = device.allocate(MemorySpace::kDevice, 32 * 128 * 4, "test output");
    device.copy(kv_device.data(), kv.data(), kv.size() * 2, CopyKind::kHostToDevice,
                filled.stream());
    const Event begin = device.create_event();
    const Event end = device.create_event();
    Measured measured;
    std::vector<float> q(32 * 128);
    const std::vector<uint16_t> lasting = random_bf16(q.size(), 99);
    for (int step = -3; step < steps; ++step) {
      const std::vector<uint16_t> change = random_bf16(q.size(), static_cast<uint64_t>(step + 100));
      for (size_t i = 0; i < q.size(); ++i) {
        q[i] = f32_from_bf16(lasting[i]) + 0.3f * f32_from_bf16(change[i]);
      }
      device.copy(q_device.data(), q.data(), q.size() * 4, CopyKind::kHostToDevice,
                  filled.stream());
      device.record(begin.view(), filled.stream());
      device.synchronize(begin.view());
      if (step == 0) filled.runtime().reset_metrics();
      const StepSequence part{filled.sequence(), 1, StepMode::kDecode};
      filled.runtime().begin_step({&part, 1});
      for (int layer = 0; layer < g.layers; ++layer) {
        const auto view = ConstTensorView::dense(kv_device.data(), DType::kBF16, 1, 8, 128);
        filled.runtime().append(layer, view, view, filled.stream());
        filled.runtime().attend(
            layer, ConstTensorView::dense(q_device.data(), DType::kF32, 1, 32, 128),
            TensorView::dense(out.data(), DType::kF32, 1, 32, 128), nullptr, filled.stream());
      }
      filled.runtime().end_step();
      device.record(end.view(), filled.stream());
      const double seconds = device.seconds_at(end.view()) - device.seconds_at(begin.view());
      if (step >= 0) measured.seconds += seconds / steps;
    }
    measured.hit_rate = filled.runtime().metrics().hit_rate();
    return measured;
  }
};

TEST_P(Prediction, IsWithin15PerCentOfTheClock) {
  constexpr int kSteps = 5;
  const int64_t tokens = GetParam().tokens;
  const DeviceOptions options = config().device_options();
  FilledRuntime filled(options, config(), llama_8b(kLayers),
                       first_chunk_dims(llama_8b(kLayers), 64), tokens);
  const Measured measured = measure(filled, kSteps);
  const int64_t reserved = tokens + FilledRuntime::kRoom;
  const MachineRates rates{{.memory_bandwidth = options.memory_bandwidth,
                            .kernels = options.kernels,
                            .link_bandwidth = options.link_bandwidth,
                            .link_latency = options.link_latency},
                           /*unified=*/false};
  DeviceTraits traits = kEmulatedTraits;
  traits.rates = rates;
  StepSettings settings =
      make_step_settings(config(), llama_8b(kLayers), DType::kBF16, traits, reserved);
  if (settings.access() == RowAccess::kOverLink && !config().placement.hot_rows) {
    constexpr uint64_t kFree = uint64_t{1} << 40;
    const int extra = extra_hot_rows(settings, settings.max_hot_rows, reserved, kFree);
    settings.max_hot_rows = std::max(settings.max_hot_rows, extra);
  }
  const CostModel model(settings, rates, reserved);
  const CostTerms predicted =
      model.step({.tokens = tokens + 5, .hit_rate = measured.hit_rate, .out = DType::kF32});
  EXPECT_NEAR(predicted.total() / measured.seconds, 1, 0.15)
      << predicted.total() * 1e6 << " us predicted, " << measured.seconds * 1e6
      << " us measured, hit rate " << measured.hit_rate;
  RecordProperty("predicted_us", std::to_string(predicted.total() * 1e6));
  RecordProperty("measured_us", std::to_string(measured.seconds * 1e6));
}

INSTANTIATE_TEST_SUITE_P(
    Emulated, Prediction,
    ::testing::Values(
        Case{"full", "full", 16384, {}, RowPlacement::kDevice, 25e9},
        Case{"fasa_c", "fasa-c", 16384, {}, RowPlacement::kDevice, 25e9},
        Case{"fasa_m", "fasa-m", 16384, {}, RowPlacement::kHost, 25e9},
        Case{"fasa_c_low_bit", "fasa-c", 16384, {}, RowPlacement::kDevice, 25e9, {2000, 0}},
        Case{"fasa_m_low_bit", "fasa-m", 16384, {}, RowPlacement::kHost, 25e9, {2000, 0}},
        Case{"fasa_c_all_low_bit", "fasa-c", 16384, {}, RowPlacement::kDevice, 25e9, {0, 1}},
        Case{"fasa_m_all_low_bit", "fasa-m", 16384, {}, RowPlacement::kHost, 25e9, {0, 1}},
        Case{"fasa_m_all_low_bit_in_waves", "fasa-m", 8192, 64, RowPlacement::kHost, 25e9, {0, 1}},
        Case{"fasa_m_in_groups", "fasa-m", 49152, {}, RowPlacement::kHost, 25e9},
        Case{"fasa_m_slow_link", "fasa-m", 8192, {}, RowPlacement::kHost, 6e9},
        Case{"fasa_m_in_waves", "fasa-m", 8192, 64, RowPlacement::kHost, 25e9},
        Case{"fasa_m_no_hot_rows", "fasa-m", 8192, 0, RowPlacement::kHost, 25e9},
        Case{"full_from_the_host", "full", 8192, {}, RowPlacement::kHost, 25e9}),
    [](const auto& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace fasa::bench
