// The list of GPUs and the device of a model, over the fake CUDA runtime.
#include "runtime/llm/compute/list_gpus.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/base/error.h"
#include "runtime/llm/compute/open_model_device.h"
#include "tests/support/fake_cuda.h"

namespace fasa {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(ListGpus, ShowsWhatAutoUses) {
  FakeCuda fake;
  fake.gpus.push_back(fake.gpus[0]);
  fake.gpus[1].major = 6;
  const GpuList list = list_gpus({}, fake.platform());
  EXPECT_EQ(list.obstacle, "");
  ASSERT_EQ(list.gpus.size(), 2u);
  EXPECT_EQ(list.gpus[0].name, "cuda:0");
  EXPECT_EQ(list.gpus[0].obstacle, "");
  ASSERT_TRUE(list.gpus[0].rates);
  EXPECT_GT(list.gpus[0].rates->link_bandwidth, 0);
  EXPECT_THAT(list.gpus[0].rates->kernels.text(), HasSubstr("launch 2.7 us, select 31.0 us"));
  EXPECT_THAT(list.gpus[1].obstacle, HasSubstr("6.0"));
  EXPECT_FALSE(list.gpus[1].rates);
  EXPECT_EQ(fake.live_streams + fake.live_events + fake.live_pools, 0);
}

TEST(ListGpus, SaysWhyAutoUsesTheCpu) {
  EXPECT_THAT(list_gpus({}, CudaPlatform{}).obstacle, HasSubstr("no CUDA device"));
  FakeCuda none;
  none.gpus.clear();
  EXPECT_THAT(list_gpus({}, none.platform()).obstacle, HasSubstr("reports no GPU"));
  FakeCuda wrong;
  CudaPlatform platform = wrong.platform();
  platform.times_kernels = true;
  platform.launch = [](const KernelCall&, void*) { throw DeviceError("no kernel image"); };
  const GpuList list = list_gpus({}, platform);
  EXPECT_THAT(list.obstacle, HasSubstr("its first kernels failed: no kernel image"));
  EXPECT_EQ(list.gpus.at(0).obstacle, list.obstacle);
  DeviceOptions options;
  options.kernel_times = false;
  EXPECT_THAT(list_gpus(options, platform).obstacle, IsEmpty());
  options.threads = -1;
  EXPECT_THROW(list_gpus(options, platform), UsageError);
}

// A block of compute capability 7.5 has two thirds of the shared memory of later ones.
TEST(OpenModelDevice, AutoTakesAGpuThatCanScore) {
  const auto opened = [](int major, int heads, int head_dim, const char* name) {
    FakeCuda fake;
    fake.gpus[0].major = major;
    fake.gpus[0].minor = major == 7 ? 5 : 0;
    ModelConfig model;
    model.query_heads = heads;
    model.kv_heads = 1;
    model.head_dim = head_dim;
    DeviceOptions options;
    options.name = name;
    options.threads = 1;
    ::testing::internal::CaptureStderr();
    const std::string device = open_model_device(options, model, fake.platform())->name();
    EXPECT_EQ(::testing::internal::GetCapturedStderr().empty(), device == "cuda:0");
    return device;
  };
  EXPECT_EQ(opened(7, 8, 128, "auto"), "cuda:0");
  for (const auto& [heads, head_dim] : {std::pair{16, 576}, {48, 128}, {64, 128}, {41, 256}}) {
    EXPECT_EQ(opened(7, heads, head_dim, "auto"), "cpu") << heads;
    EXPECT_EQ(opened(7, heads, head_dim, "cuda:0"), "cuda:0") << heads;
    EXPECT_EQ(opened(8, heads, head_dim, "auto"), "cuda:0") << heads;
  }
  EXPECT_EQ(opened(8, 128, 128, "auto"), "cpu");
}

}  // namespace
}  // namespace fasa
