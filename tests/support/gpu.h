// Tests that need a GPU are skipped and counted where there is none; with FASA_REQUIRE_GPU=1 they
// fail instead.
#pragma once

#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

#include "offload/cuda/cuda_choice.h"

namespace fasa {

// The reason why cuda:0 cannot be used; "" if it can.
inline const std::string& gpu_obstacle() {
  static const std::string obstacle = [] {
    const CudaPlatform platform = cuda_platform();
    if (platform.calls == nullptr) return std::string("this build has no CUDA device");
    return cuda_obstacle(take_inventory(*platform.calls), 0, platform.machine_code, platform.ptx);
  }();
  return obstacle;
}

inline bool gpu_required() {
  const char* const required = std::getenv("FASA_REQUIRE_GPU");
  return required != nullptr && std::string_view(required) != "0";
}

// Counts the skipped tests and reports them at the end.
class GpuSkips final : public ::testing::EmptyTestEventListener {
 public:
  static void add() {
    static GpuSkips* const listener = [] {
      auto* made = new GpuSkips;  // owned by GoogleTest
      ::testing::UnitTest::GetInstance()->listeners().Append(made);
      return made;
    }();
    ++listener->count_;
  }
  void OnTestProgramEnd(const ::testing::UnitTest&) override {
    std::printf("GPU tests skipped: %d (%s)\n", count_, gpu_obstacle().c_str());
  }

 private:
  int count_ = 0;
};

}  // namespace fasa

// For SetUp or a test's body.
#define FASA_NEEDS_GPU()                                            \
  do {                                                              \
    if (!::fasa::gpu_obstacle().empty()) {                          \
      if (::fasa::gpu_required()) FAIL() << ::fasa::gpu_obstacle(); \
      ::fasa::GpuSkips::add();                                      \
      GTEST_SKIP() << ::fasa::gpu_obstacle();                       \
    }                                                               \
  } while (false)
