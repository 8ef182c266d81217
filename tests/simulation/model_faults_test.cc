// Loading a model, calibrating it, running it, opening devices: each point that can fail fails in
// turn, files and threads included.
#include <gtest/gtest.h>
#include <tbb/task_arena.h>

#include <iostream>
#include <memory>
#include <optional>
#include <string>

#include "offload/open_device.h"
#include "runtime/capture/calibration.h"
#include "runtime/fasa.hpp"
#include "runtime/llm/compute/model.h"
#include "tests/llm/llm_fixture.h"
#include "tests/simulation/fault_injection.h"
#include "tests/simulation/process_faults.h"
#include "tests/support/injecting_device.h"

namespace fasa::testing {
namespace {

constexpr FaultPoints kCalls = {FaultPoint::kAllocation, FaultPoint::kCopy,   FaultPoint::kFill,
                                FaultPoint::kEvent,      FaultPoint::kStream, FaultPoint::kHeap,
                                FaultPoint::kThread,     FaultPoint::kFile};

std::unique_ptr<Device> open_emulated() {
  DeviceOptions options;
  options.name = "emulated";
  options.threads = 1;
  return open_device(options);
}

// A device of the product whose calls fail by the injector.
struct Bench {
  FaultInjector injector;
  std::unique_ptr<Device> inner = open_emulated();
  InjectingDevice device{*inner, injector, InjectingDevice::Inner::kProducts};
};

class DeviceFaultCase : public FaultCase {
 public:
  explicit DeviceFaultCase(Bench& bench) : bench_(bench) {}
  void prepare() override {
    held_ = {bench_.device.held_bytes(MemorySpace::kDevice),
             bench_.device.held_bytes(MemorySpace::kHost)};
  }
  void check_unchanged() override {
    EXPECT_EQ(bench_.device.held_bytes(MemorySpace::kDevice), held_.first);
    EXPECT_EQ(bench_.device.held_bytes(MemorySpace::kHost), held_.second);
  }

 protected:
  Bench& bench_;
  std::pair<uint64_t, uint64_t> held_;
};

// Device memory and heap blocks return to their earlier values too, after a first call has made the
// objects that are made once.
class LoadFaultCase final : public DeviceFaultCase {
 public:
  explicit LoadFaultCase(Bench& bench) : DeviceFaultCase(bench) {
    call();
    undo();
    blocks_ = live_heap_blocks();
  }
  void call() override {
    model_.emplace(Model::load(llm_test::golden_dir("llama-mha-tied"), bench_.device, DType::kF32));
  }
  void check_done() override { EXPECT_GT(model_->weight_bytes().total, 0u); }
  void undo() override { model_.reset(); }
  int64_t blocks_left() const { return live_heap_blocks() - blocks_; }

 private:
  std::optional<Model> model_;
  int64_t blocks_ = 0;
};

class StepOfModelFaultCase final : public DeviceFaultCase {
 public:
  explicit StepOfModelFaultCase(Bench& bench)
      : DeviceFaultCase(bench),
        model_(Model::load(llm_test::golden_dir("llama-mha-tied"), bench.device, DType::kF32)),
        runtime_(llm_test::full_runtime(model_)),
        sequence_(runtime_->create()) {
    call();
    logits_ = given_;
    undo();
  }
  // A prefill, then a decoded token.
  void call() override {
    const int32_t ids[] = {1, 2, 3, 4, 5, 6, 7};
    const StepSequence fill{sequence_, 7, StepMode::kPrefill};
    const int32_t next = 8;
    const StepSequence decode{sequence_, 1, StepMode::kDecode};
    model_.step(*runtime_, ids, {&fill, 1});
    try {
      const auto logits = model_.step(*runtime_, {&next, 1}, {&decode, 1});
      const FaultInjector::Pause pause(bench_.injector,
                                       FaultPoint::kOperation);  // a caller's own copy
      given_.assign(logits.begin(), logits.end());
    } catch (...) {
      const FaultInjector::Pause pause(bench_.injector, FaultPoint::kOperation);
      undo();
      throw;
    }
  }
  void check_unchanged() override {
    EXPECT_EQ(runtime_->length(sequence_), 0);
    const KvMemory memory = runtime_->memory();
    EXPECT_LE(memory.device_total(), bench_.device.held_bytes(MemorySpace::kDevice));
  }
  void check_done() override { EXPECT_EQ(given_, logits_); }
  void undo() override { runtime_->truncate(sequence_, 0); }

 private:
  Model model_;
  std::unique_ptr<Runtime> runtime_;
  SequenceId sequence_{};
  std::vector<float> given_, logits_;
};

class CalibrationFaultCase final : public DeviceFaultCase {
 public:
  explicit CalibrationFaultCase(Bench& bench)
      : DeviceFaultCase(bench),
        model_(Model::load(llm_test::golden_dir("llama-mha-tied"), bench.device, DType::kF32)),
        arena_(1) {
    for (int i = 0; i < 90; ++i) text_.push_back((i * 7 + i / 5) % 60 + 1);
    call();
    json_ = map_->to_json();
    undo();
  }
  void call() override {
    CalibrationOptions options;
    options.tokens = 90;
    options.queries = 6;
    options.tip_chunks = 2;
    options.probes = false;
    options.sinks = 2;
    options.recent = 4;
    options.prefill_chunk = 40;
    arena_.execute([&] { map_ = calibrate(model_, text_, options); });
  }
  void check_done() override { EXPECT_EQ(map_->to_json(), json_); }
  void undo() override { map_.reset(); }

 private:
  Model model_;
  tbb::task_arena arena_;
  std::vector<int32_t> text_;
  std::optional<FcMap> map_;
  std::string json_;
};

// Opens a device with two streams, each of which is a thread.
class OpenFaultCase final : public FaultCase {
 public:
  void call() override {
    device_ = open_emulated();
    try {
      for (Stream& stream : streams_) {
        stream = device_->create_stream(StreamPriority::kNormal, "one of two");
      }
    } catch (...) {
      undo();
      throw;
    }
  }
  void check_unchanged() override { EXPECT_EQ(device_, nullptr); }
  void check_done() override { EXPECT_NE(device_, nullptr); }
  void undo() override {
    for (Stream& stream : streams_) stream = Stream();
    device_.reset();
  }

 private:
  std::unique_ptr<Device> device_;
  Stream streams_[2];
};

void run(const std::string& name, FaultInjector& injector, FaultCase& fault_case, int64_t usual) {
  FaultCount total;
  for (const FaultMode mode : {FaultMode::kOnce, FaultMode::kFromThenOn}) {
    total += inject_faults(name, injector, fault_case, planned(name, kCalls, mode, usual));
    if (::testing::Test::HasFailure()) break;
  }
  std::cout << name << ": injected " << total.injected << ", of which " << total.thrown
            << " came out as errors\n";
  ::testing::Test::RecordProperty("injected", static_cast<int>(total.injected));
}

TEST(ModelFaults, Load) {
  Bench bench;
  LoadFaultCase fault_case(bench);
  run("load a model", bench.injector, fault_case, 29);
  // for objects made once; a real leak would grow with every call
  EXPECT_LE(fault_case.blocks_left(), 8);
}

TEST(ModelFaults, Step) {
  Bench bench;
  StepOfModelFaultCase fault_case(bench);
  run("prefill and decode of a model", bench.injector, fault_case, 17);
}

TEST(ModelFaults, Calibrate) {
  Bench bench;
  CalibrationFaultCase fault_case(bench);
  run("calibrate", bench.injector, fault_case, 97);
}

TEST(DeviceFaults, Open) {
  FaultInjector injector;
  OpenFaultCase fault_case;
  run("open a device", injector, fault_case, 1);
}

}  // namespace
}  // namespace fasa::testing
