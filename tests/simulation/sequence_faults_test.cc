// Each point that can fail in the calls of the sequences API fails in turn.
#include <gtest/gtest.h>

#include <functional>
#include <iostream>
#include <string>

#include "runtime/base/error.h"
#include "tests/simulation/fault_injection.h"
#include "tests/simulation/still_life.h"

namespace fasa::testing {
namespace {

constexpr FaultPoints kCalls = {FaultPoint::kAllocation, FaultPoint::kCopy,   FaultPoint::kFill,
                                FaultPoint::kEvent,      FaultPoint::kStream, FaultPoint::kHeap};

// A call of the runtime, and the call that undoes it.
class LifeFaultCase : public FaultCase {
 public:
  explicit LifeFaultCase(StillLife& life) : life_(life) {}
  void prepare() override { was_ = life_.runtime().memory(); }
  void check_unchanged() override { life_.expect_as_before(was_); }
  void check_done() override { life_.expect_lengths(); }
  void undo() override {}

 protected:
  StillLife& life_;
  KvMemory was_;
};

class StepFaultCase final : public LifeFaultCase {
 public:
  StepFaultCase(StillLife& life, std::vector<LifePart> parts)
      : LifeFaultCase(life), parts_(std::move(parts)) {}
  // Runs the step once before, so that memory that the runtime keeps is allocated.
  void prepare() override {
    life_.step(parts_);
    roll_back();
    LifeFaultCase::prepare();
  }
  void call() override { life_.step(parts_); }
  // A step that had begun has all its memory.
  void check_unchanged() override { life_.expect_books(); }
  void check_done() override { EXPECT_EQ(life_.difference(), ""); }
  void undo() override { roll_back(); }

 private:
  void roll_back() {
    for (const LifePart& part : parts_) {
      life_.runtime().truncate(part.id, static_cast<int64_t>(life_.history(part.id).size()));
    }
  }
  const std::vector<LifePart> parts_;
};

// A first step after a fork inside a page: the page is copied before it is written.
class ForkedStepFaultCase final : public LifeFaultCase {
 public:
  using LifeFaultCase::LifeFaultCase;
  void prepare() override {
    child_ = life_.runtime().fork(life_.a(), 100);
    const History& parent = life_.history(life_.a());
    life_.history(child_) = History(parent.begin(), parent.begin() + 100);
    LifeFaultCase::prepare();
  }
  void call() override { life_.step({{child_, 40, StepMode::kPrefill}}); }
  void check_unchanged() override {
    life_.expect_books();
    EXPECT_EQ(life_.runtime().length(child_), 100);
  }
  void check_done() override { EXPECT_EQ(life_.difference(), ""); }
  void undo() override { life_.runtime().free(child_); }

 private:
  SequenceId child_{};
};

class CallFaultCase final : public LifeFaultCase {
 public:
  CallFaultCase(StillLife& life, std::function<void()> call, std::function<void()> undo)
      : LifeFaultCase(life), call_(std::move(call)), undo_(std::move(undo)) {}
  // Runs once before, so that memory that the runtime keeps is allocated.
  void prepare() override {
    call_();
    undo_();
    LifeFaultCase::prepare();
  }
  void call() override { call_(); }
  void undo() override { undo_(); }
  // Checks by a step that the sequences are unchanged.
  void check_done() override {
    LifeFaultCase::check_done();
    const std::vector<LifePart> both = {{.id = life_.a()}, {.id = life_.b()}};
    undo_();
    life_.step(both);
    EXPECT_EQ(life_.difference(), "");
    for (const LifePart& part : both) {
      life_.runtime().truncate(part.id, static_cast<int64_t>(life_.history(part.id).size()));
    }
    call_();
  }

 private:
  const std::function<void()> call_, undo_;
};

const LifeSetup kSetups[] = {{.name = "host"},
                             {.name = "predictions", .hot_rows = 60, .depth = 2, .queries = true},
                             {.name = "auto", .rows = RowPlacement::kAuto},
                             {.name = "device", .rows = RowPlacement::kDevice},
                             {.name = "dense", .hot_rows = 0, .dense_layers = {1}}};

class SequenceFaults : public ::testing::TestWithParam<LifeSetup> {
 protected:
  // Runs the fault case in both fault modes.
  void run(const std::string& what, FaultCase& fault_case, StillLife& life, int64_t usual) {
    for (const FaultMode mode : {FaultMode::kOnce, FaultMode::kFromThenOn}) {
      const std::string name = std::string(GetParam().name) + ": " + what;
      const FaultCount count =
          inject_faults(name, life.injector(), fault_case, planned(name, kCalls, mode, usual));
      if (HasFailure()) return;
      total_ += count;
    }
  }
  void TearDown() override {
    std::cout << "injected " << total_.injected << ", of which " << total_.thrown
              << " came out as errors\n";
    RecordProperty("injected", static_cast<int>(total_.injected));
  }
  FaultCount total_;
};

TEST_P(SequenceFaults, Steps) {
  StillLife life(GetParam());
  const LifePart decode{.id = life.a()};
  const LifePart fill{life.b(), 75, StepMode::kPrefill};
  StepFaultCase decoding(life, {decode});
  run("decode", decoding, life, 5);
  StepFaultCase filling(life, {fill});
  run("prefill", filling, life, 5);
  StepFaultCase mixed(life, {fill, decode});
  run("mixed", mixed, life, 5);
  const std::vector<StepSequence> parts = {{life.a(), 1, StepMode::kDecode},
                                           {life.b(), 75, StepMode::kPrefill}};
  CallFaultCase beginning(
      life, [&] { life.runtime().begin_step(parts); }, [&] { life.runtime().abort_step(); });
  run("begin_step", beginning, life, 2);
  StepFaultCase both(life, {decode, {.id = life.b()}});
  run("two decoded", both, life, 5);
}

TEST_P(SequenceFaults, ForksAndTruncations) {
  StillLife life(GetParam());
  Runtime& runtime = life.runtime();
  SequenceId child{};
  CallFaultCase fork(
      life, [&] { child = runtime.fork(life.a(), 100); }, [&] { runtime.free(child); });
  run("fork", fork, life, 1);
  ForkedStepFaultCase forked(life);
  run("step of a fork", forked, life, 5);
  CallFaultCase create(
      life, [&] { child = runtime.create(); }, [&] { runtime.free(child); });
  run("create", create, life, 1);
  CallFaultCase reserve(
      life,
      [&] {
        child = runtime.create();
        try {
          runtime.reserve(child, 200, 64);
        } catch (...) {
          runtime.free(child);
          throw;
        }
      },
      [&] { runtime.free(child); });
  run("reserve", reserve, life, 1);
}

TEST_P(SequenceFaults, TruncateAndRead) {
  StillLife life(GetParam());
  Runtime& runtime = life.runtime();
  // Writes the truncated tokens again.
  class Truncation final : public LifeFaultCase {
   public:
    using LifeFaultCase::LifeFaultCase;
    void call() override { life_.runtime().truncate(life_.a(), 100); }
    void check_done() override { EXPECT_EQ(life_.runtime().length(life_.a()), 100); }
    void undo() override {
      life_.history(life_.a()).resize(100);
      const std::vector<LifePart> parts = {{life_.a(), 50, StepMode::kPrefill}};
      life_.step(parts);
      EXPECT_EQ(life_.difference(), "");
      life_.wrote(parts);
    }
  };
  Truncation truncation(life);
  run("truncate", truncation, life, 1);
  const Geometry& g = life.geometry();
  std::vector<float> k(static_cast<size_t>(20 * g.kv_heads * g.key_dim));
  std::vector<float> v(static_cast<size_t>(20 * g.kv_heads * g.value_dim));
  CallFaultCase read(
      life,
      [&] {
        runtime.read(
            life.b(), 1, 30, TensorView::dense(k.data(), DType::kF32, 20, g.kv_heads, g.key_dim),
            TensorView::dense(v.data(), DType::kF32, 20, g.kv_heads, g.value_dim), life.stream());
        life.device().synchronize(life.stream());
      },
      [] {});
  run("read", read, life, 1);
  CallFaultCase metrics(
      life,
      [&] {
        runtime.metrics();
        runtime.reset_metrics();
      },
      [] {});
  run("metrics", metrics, life, 1);
}

TEST_P(SequenceFaults, Opening) {
  StillLife life(GetParam());
  std::unique_ptr<Runtime> second;
  CallFaultCase open(
      life,
      [&] {
        second = std::make_unique<Runtime>(life.device(), life.config(), life.geometry(),
                                           DType::kBF16, life.slice_dims());
      },
      [&] { second.reset(); });
  run("opening", open, life, 1);
}

INSTANTIATE_TEST_SUITE_P(Setups, SequenceFaults, ::testing::ValuesIn(kSetups),
                         [](const auto& setup) { return std::string(setup.param.name); });

}  // namespace
}  // namespace fasa::testing
