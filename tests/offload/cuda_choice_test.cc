// The choice of a GPU, and the messages where no GPU can be used.
#include "offload/cuda/cuda_choice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "offload/open_device.h"
#include "offload/open_host_device.h"
#include "runtime/base/error.h"
#include "tests/support/fake_cuda.h"

namespace fasa {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr char kMachineCode[] = "75,80,86,89,90";
constexpr char kPtx[] = "90";

std::string obstacle_of(FakeCuda& fake, int index = 0) {
  return cuda_obstacle(take_inventory(fake), index, kMachineCode, kPtx);
}

TEST(CudaName, IsANumberOrNothing) {
  EXPECT_EQ(parse_cuda_name("cuda"), 0);
  EXPECT_EQ(parse_cuda_name("cuda:0"), 0);
  EXPECT_EQ(parse_cuda_name("cuda:12"), 12);
  EXPECT_EQ(parse_cuda_name("cpu"), std::nullopt);
  EXPECT_EQ(parse_cuda_name("cudart"), std::nullopt);
  for (const char* bad : {"cuda:", "cuda:x", "cuda:-1", "cuda:0x", "cuda:99999999999"}) {
    EXPECT_THROW(parse_cuda_name(bad), UsageError) << bad;
  }
}

TEST(CudaCode, RunsOnItsMajorVersionAndPtxOnNewer) {
  const auto runs = [](int major, int minor, const char* code, const char* ptx) {
    CudaGpu gpu;
    gpu.major = major;
    gpu.minor = minor;
    return runs_on(gpu, code, ptx);
  };
  EXPECT_TRUE(runs(7, 5, kMachineCode, kPtx));
  EXPECT_FALSE(runs(7, 0, kMachineCode, kPtx));
  EXPECT_FALSE(runs(6, 1, kMachineCode, kPtx));
  EXPECT_TRUE(runs(8, 7, kMachineCode, kPtx));   // by 8.6's
  EXPECT_TRUE(runs(10, 0, kMachineCode, kPtx));  // by PTX
  EXPECT_FALSE(runs(10, 0, "90,120", "120"));    // PTX is for no older ones
  EXPECT_TRUE(runs(12, 1, "90,120", "120"));
  for (const auto& [major, minor] : {std::pair{10, 0}, {10, 3}, {12, 0}, {13, 0}}) {
    EXPECT_TRUE(runs(major, minor, "75,80,86,89,90,120", "90,120")) << major;  // as built
  }
  EXPECT_FALSE(runs(9, 0, "", ""));
}

TEST(CudaObstacle, NoneWhereTheGpuWillDo) {
  FakeCuda fake;
  EXPECT_EQ(obstacle_of(fake), "");
}

TEST(CudaObstacle, EachSaysWhatToDo) {
  const auto with = [](auto change, int index = 0) {
    FakeCuda fake;
    change(fake);
    return obstacle_of(fake, index);
  };
  EXPECT_THAT(with([](FakeCuda& fake) {
                fake.driver_version = 0;
                fake.count_status = cuda_status::kInsufficientDriver;  // as the runtime has it
              }),
              AllOf(HasSubstr("no NVIDIA driver"), HasSubstr("--gpus")));
  EXPECT_THAT(with([](FakeCuda& fake) {
                fake.driver_version = 12020;
                fake.count_status = cuda_status::kInsufficientDriver;
              }),
              AllOf(HasSubstr("too old"), HasSubstr("CUDA 12.2"), HasSubstr("13.0")));
  EXPECT_THAT(with([](FakeCuda& fake) { fake.count_status = cuda_status::kNoDevice; }),
              AllOf(HasSubstr("reports no GPU"), HasSubstr("CUDA_VISIBLE_DEVICES")));
  EXPECT_THAT(with([](FakeCuda& fake) { fake.gpus.clear(); }), HasSubstr("reports no GPU"));
  EXPECT_THAT(with([](FakeCuda& fake) { fake.count_status = cuda_status::kSystemDriverMismatch; }),
              HasSubstr("restart"));
  EXPECT_THAT(with([](FakeCuda& fake) { fake.count_status = cuda_status::kSystemNotReady; }),
              HasSubstr("nvidia-fabricmanager"));
  EXPECT_THAT(with([](FakeCuda& fake) { fake.count_status = cuda_status::kUnknown; }),
              AllOf(HasSubstr("cudaError999"), HasSubstr("nvidia-smi")));
  EXPECT_THAT(with([](FakeCuda&) {}, 3),
              AllOf(HasSubstr("this GPU does not exist"), HasSubstr("cuda:0")));
  EXPECT_THAT(with([](FakeCuda& fake) { fake.gpus[0].major = 6; }),
              AllOf(HasSubstr("6.0"), HasSubstr(kMachineCode)));
  EXPECT_THAT(with([](FakeCuda& fake) { fake.gpus[0].prohibited = true; }), HasSubstr("-c 0"));
  EXPECT_THAT(with([](FakeCuda& fake) { fake.gpus[0].shares_host_addresses = false; }),
              HasSubstr("host memory"));
}

TEST(CudaObstacle, EveryQuestionMayGoWrong) {
  for (const char* call : {"versions", "count_gpus", "describe"}) {
    FakeCuda fake;
    fake.fail_call(call, 1, cuda_status::kUnknown);
    EXPECT_NE(obstacle_of(fake), "") << call;
    EXPECT_EQ(obstacle_of(fake), "") << call;
  }
}

TEST(OpenCuda, ByNameAndByItself) {
  FakeCuda fake;
  DeviceOptions options;
  for (const char* name : {"cuda", "cuda:0", "auto"}) {
    options.name = name;
    EXPECT_EQ(open_device(options, fake.platform())->name(), "cuda:0") << name;
  }
  options.name = "cpu";
  EXPECT_EQ(open_device(options, fake.platform())->name(), "cpu");
  options.name = "gpu";
  EXPECT_THROW(open_device(options, fake.platform()), UsageError);
  options.name = "cuda:0";
  EXPECT_THROW(open_device(options, CudaPlatform{}), UsageError);
}

// A problem with the GPU is an error if the user asked for the GPU, and a notice otherwise.
TEST(OpenCuda, AutoFallsBackToTheCpu) {
  const auto check = [](auto change, const char* said) {
    FakeCuda fake;
    change(fake);
    DeviceOptions options;
    options.name = "auto";
    ::testing::internal::CaptureStderr();
    EXPECT_EQ(open_device(options, fake.platform())->name(), "cpu") << said;
    EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr(said));
    FakeCuda again;
    change(again);
    options.name = "cuda:0";
    try {
      open_device(options, again.platform());
      ADD_FAILURE() << "opened although: " << said;
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr(said));
    }
  };
  check([](FakeCuda& fake) { fake.driver_version = 0; }, "no NVIDIA driver");
  check([](FakeCuda& fake) { fake.gpus[0].major = 5; }, "5.0");
  check([](FakeCuda& fake) { fake.fail_call("register_host", 1, cuda_status::kOperatingSystem); },
        "cudaHostRegister");
  check([](FakeCuda& fake) { fake.others_bytes = fake.gpus[0].memory_bytes; },
        "cudaMallocFromPoolAsync of");
}

TEST(OpenCuda, ModelsNeedADeviceThatRunsHostCode) {
  DeviceOptions options;
  EXPECT_EQ(open_host_device(options)->name(), "cpu");
  options.name = "emulated";
  EXPECT_EQ(open_host_device(options)->name(), "emulated");
  options.name = "cuda:0";
  EXPECT_THROW(open_host_device(options), UsageError);
}

TEST(OpenCuda, WrongOptionsAreWrongEverywhere) {
  FakeCuda fake;
  DeviceOptions options;
  options.name = "auto";
  options.threads = -1;
  EXPECT_THROW(open_device(options, fake.platform()), UsageError);
  options.threads = 1;
  options.host_alias_bytes = 1 << 20;
  EXPECT_THROW(open_device(options, fake.platform()), UsageError);
}

// Opening another GPU does not change the thread's current GPU.
TEST(OpenCuda, AnotherGpuLeavesTheThreadsOwn) {
  FakeCuda fake;
  fake.gpus.push_back(fake.gpus[0]);
  DeviceOptions options;
  options.name = "cuda:1";
  const auto device = open_device(options, fake.platform());
  const Stream stream = device->create_stream(StreamPriority::kNormal, "test");
  const Buffer buffer = device->allocate(MemorySpace::kDevice, 100, "test");
  device->fill(buffer.data(), 1, 100, stream.view());
  device->synchronize(stream.view());
  int current = -1;
  fake.current_gpu(&current);
  EXPECT_EQ(current, 0);
  EXPECT_GT(fake.calls["use_gpu"], 0);
}

}  // namespace
}  // namespace fasa
