// The whole pipeline on the CUDA device: over a fake runtime on the host, with the CPU's kernels
// and bits; and on a GPU, where there is one, with the GPU's own bits in every setup.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "runtime/base/error.h"
#include "tests/support/fake_cuda.h"
#include "tests/support/gpu.h"
#include "tests/support/interpreted_kernels.h"
#include "tests/support/runs.h"

namespace fasa::testing {
namespace {

constexpr int kPrompt = 200;
constexpr int kSteps = 6;

using Outputs = std::vector<std::vector<float>>;

Outputs generate(RuntimeRun& run, int chunk = kPrompt) {
  const SequenceId id = run.runtime().create();
  Outputs outputs = run.prefill(id, 1, kPrompt, chunk);
  for (auto& step : run.decode(id, 1, kSteps)) outputs.push_back(std::move(step));
  return outputs;
}
Outputs generate(const RunSetup& setup, int chunk = kPrompt) {
  RuntimeRun run(setup);
  return generate(run, chunk);
}

void expect_same(const Outputs& a, const Outputs& b, const std::string& what) {
  ASSERT_EQ(a.size(), b.size()) << what;
  for (size_t i = 0; i < a.size(); ++i) {
    ASSERT_TRUE(same_bits(a[i], b[i])) << what << ": differs at token " << i;
  }
}

// The values are below 2, and weighted means are summed in another order.
void expect_near(const Outputs& a, const Outputs& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    ASSERT_EQ(a[i].size(), b[i].size());
    for (size_t j = 0; j < a[i].size(); ++j) {
      ASSERT_NEAR(a[i][j], b[i][j], 3e-5) << "token " << i << ", element " << j;
    }
  }
}

struct NamedSetup {
  std::string name;
  RunSetup setup;
};

// Setups that give the same outputs on one kind of device. The tests' own predictors are host code.
std::vector<NamedSetup> ways() {
  return {{"host rows", {}},
          {"device rows", {.rows = RowPlacement::kDevice}},
          {"rows where there is room", {.rows = RowPlacement::kAuto}},
          {"no hot rows", {.hot_rows = 0}},
          {"few hot rows, four streams", {.hot_rows = 33, .streams = 4}},
          {"heads in groups", {.head_groups = 2}},
          {"heads in groups on one lane", {.streams = 1, .head_groups = 2}},
          {"the last step's rows fetched back",
           {.hot_rows = 20, .depth = 1, .predictor = PredictorKind::kRunnersUp}}};
}

TEST(CudaPipeline, OverAFakeRuntimeHasTheCpusBits) {
  for (const int shared_layers : {0, 2}) {
    const Outputs base = generate({.shared_layers = shared_layers});
    for (NamedSetup way : ways()) {
      way.setup.shared_layers = shared_layers;
      FakeCuda fake;
      {
        RuntimeRun run(open_fake(fake), way.setup);
        expect_same(base, generate(run, 67), way.name);
      }
      EXPECT_EQ(fake.device_bytes, 0u);
      EXPECT_EQ(fake.live_streams, 0);
      EXPECT_TRUE(fake.registered.empty());
    }
  }
}

// With the interpreted GPU kernels: their own bits, the same in every setup, with ALiBi, a soft
// cap and layers that share rows too.
TEST(CudaPipeline, OfInterpretedKernelsHasTheSameBitsInEveryWay) {
  for (const bool capped : {false, true}) {
    Geometry geometry = small_geometry();
    if (capped) {
      geometry.alibi_slopes = {0.5f, 0.25f, 0.125f, 0.0625f, 0.03125f, 0};
      geometry.score_cap = 2;
    }
    Outputs base;
    std::vector<NamedSetup> all = ways();
    all.insert(all.begin(), {"copies", {.copies = true}});
    for (NamedSetup way : all) {
      way.setup.shared_layers = capped ? 2 : 0;
      FakeCuda fake;
      RuntimeRun run(open_device(cuda_options(), interpreted_platform(fake)), way.setup, geometry);
      const Outputs outputs = generate(run, base.empty() ? kPrompt : 67);
      if (base.empty()) base = outputs;
      expect_same(base, outputs, way.name);
    }
  }
}

// Uncoded slices are scored in f32 on both devices, so the same tokens are selected, and outputs
// differ only by the order of sums.
TEST(CudaPipeline, OfInterpretedKernelsIsTheCpusOverUncodedSlices) {
  for (const SliceDType slice : {SliceDType::kF32, SliceDType::kBF16}) {
    for (const bool sloped : {false, true}) {
      Geometry geometry = small_geometry();
      if (sloped) geometry.alibi_slopes = {0.5f, 0.25f, 0.125f, 0.0625f, 0.03125f, 0};
      RunSetup setup{.slice = slice};
      RuntimeRun cpu(setup, geometry);
      FakeCuda fake;
      RuntimeRun run(open_device(cuda_options(), interpreted_platform(fake)), setup, geometry);
      expect_near(generate(cpu), generate(run));
    }
  }
}

// A layer's pages here are as large as a real model's: they are streamed in batches.
TEST(CudaPipeline, StreamsWholePagesInBatches) {
  Geometry geometry = small_geometry();
  geometry.kv_heads = 4;
  geometry.query_heads = 4;
  geometry.key_dim = geometry.rotary_dims = geometry.value_dim = 64;
  const RunSetup full{.kind = SelectionKind::kFull};
  RuntimeRun cpu(full, geometry);
  const Outputs base = generate(cpu);
  for (const int driver : {13000, 12070}) {
    FakeCuda fake;
    fake.driver_version = driver;
    fake.runtime_version = 12070;
    RuntimeRun run(open_fake(fake), full, geometry);
    expect_same(base, generate(run, 67), std::to_string(driver));
    EXPECT_GT(fake.calls["copy_all"], driver == 13000 ? 10 : 0);
  }
}

// Each operation in turn fails while it runs: a later call throws a DeviceError that names the
// work, and teardown is clean.
TEST(CudaPipeline, EveryFailureIsNamedAndEndsInOrder) {
  int64_t failed = 0;
  for (bool all = false; !all; ++failed) {
    SCOPED_TRACE(failed + 1);
    FakeCuda fake;
    std::string said;
    {
      RuntimeRun run(open_fake(fake), {});
      fake.fail_operation(failed + 1);
      try {
        generate(run, 67);
        all = true;
      } catch (const DeviceError& error) {
        said = error.what();
        try {
          run.runtime().abort_step();  // the caller's stream still exists
        } catch (const UsageError&) {
          // The failure occurred between steps.
        }
      }
    }
    if (!all) {
      ASSERT_THAT(said, ::testing::AllOf(::testing::HasSubstr("an operation failed; candidates: '"),
                                         ::testing::HasSubstr("cudaErrorIllegalAddress")));
    }
    ASSERT_EQ(fake.device_bytes, 0u);
    ASSERT_EQ(fake.live_streams, 0);
    ASSERT_EQ(fake.live_events, 0);
  }
  EXPECT_GT(failed, 250);
}

class CudaPipelineOnGpu : public ::testing::Test {
 protected:
  void SetUp() override { FASA_NEEDS_GPU(); }
};

TEST_F(CudaPipelineOnGpu, EveryWayHasTheSameBits) {
  RunSetup first;
  first.device = "cuda:0";
  const Outputs base = generate(first);
  for (NamedSetup way : ways()) {
    way.setup.device = "cuda:0";
    expect_same(base, generate(way.setup, 67), way.name);
  }
}

TEST_F(CudaPipelineOnGpu, EverythingSelectedIsFullAndNearTheCpu) {
  RunSetup full;
  full.kind = SelectionKind::kFull;
  const Outputs cpu = generate(full);
  full.device = "cuda:0";
  const Outputs gpu = generate(full);
  RunSetup all;
  all.device = "cuda:0";
  all.fac_tokens = 10000;
  expect_same(gpu, generate(all), "fasa over all tokens");
  expect_near(cpu, gpu);
}

// The same as the interpreted kernels, whose scores of uncoded slices equal the GPU's to the bit.
TEST_F(CudaPipelineOnGpu, OverUncodedSlicesIsTheCpus) {
  for (const SliceDType slice : {SliceDType::kF32, SliceDType::kBF16}) {
    RunSetup setup{.slice = slice};
    const Outputs cpu = generate(setup);
    setup.device = "cuda:0";
    expect_near(cpu, generate(setup));
  }
}

}  // namespace
}  // namespace fasa::testing
