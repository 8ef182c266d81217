// A model's profile on the CUDA device, over a fake runtime on the host.
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "offload/open_device.h"
#include "runtime/profile/profiled_model.h"
#include "tests/support/fake_cuda.h"
#include "tests/support/source_path.h"

namespace fasa {
namespace {

constexpr int kSteps = 5;

struct Profiled {
  Profile profile{0};
  KvMemory memory;
};

Profiled profile(const std::string& device, FakeCuda* fake) {
  const std::string dir = source_path("models/needle-3m");
  const ModelConfig model = ModelConfig::load(dir);
  ProfiledModelOptions settings;
  settings.dir = dir;
  settings.config.device.name = device;
  settings.config.device.threads = 2;
  settings.config.selection.fac_tokens = {{.tokens = 32, .share = 0}};
  settings.config.placement.hot_rows = 40;
  settings.config.prefetch.predictor = PredictorKind::kNone;
  for (int i = 0; i < 300; ++i) settings.prompt.push_back((i * 37 + i / 11) % 200 + 20);
  settings.max_steps = kSteps + 2;
  settings.prefill_chunk = 128;
  settings.slice_dims = [](Model& loaded) { return all_slice_dims(loaded.config().geometry()); };
  if (fake != nullptr) {
    settings.open = [&] {
      DeviceOptions options = settings.config.device_options();
      return open_device(options, fake->platform());
    };
  }
  ProfiledModel decode(settings, model);
  decode.warm_up();
  for (int i = 0; i < kSteps; ++i) decode.step();
  return {decode.profile(), decode.memory()};
}

TEST(CudaProfile, SeesTheSetsAndTheBytesThatAnEmulatedOneSees) {
  const Profiled expected = profile("emulated", nullptr);
  FakeCuda fake;
  const Profiled given = profile("cuda:0", &fake);
  const LayerProfile a = expected.profile.total(), b = given.profile.total();
  EXPECT_GT(b.rows.misses, 0u);
  EXPECT_EQ(b.overlap.entries, a.overlap.entries);
  EXPECT_NEAR(b.overlap.share(), a.overlap.share(), 0.05);
  EXPECT_NEAR(b.rows.hit_rate(), a.rows.hit_rate(), 0.05);
  // Bytes come from the counters and are assigned to the operations that transferred them.
  EXPECT_EQ(b.write_back_bytes, a.write_back_bytes);
  EXPECT_EQ(b.miss.bytes * a.rows.misses, a.miss.bytes * b.rows.misses);
  EXPECT_GT(given.profile.total_transfer(), 0);
  EXPECT_GT(given.profile.seconds(), 0);
  EXPECT_EQ(fake.device_bytes, 0u);
  EXPECT_EQ(fake.live_streams, 0);
  EXPECT_EQ(fake.live_events, 0);
}

}  // namespace
}  // namespace fasa
