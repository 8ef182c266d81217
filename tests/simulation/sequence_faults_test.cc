// Each point that can fail in the calls of the sequences API fails in turn.
#include <gtest/gtest.h>

#include <functional>
#include <iostream>
#include <string>

#include "runtime/base/error.h"
#include "tests/simulation/fault_injection.h"
#include "tests/simulation/sequence_fixture.h"

namespace fasa::testing {
namespace {

constexpr FaultPoints kCalls = {FaultPoint::kAllocation, FaultPoint::kCopy,   FaultPoint::kFill,
                                FaultPoint::kEvent,      FaultPoint::kStream, FaultPoint::kHeap};

// A call of the runtime, and the call that undoes it.
class FixtureFaultCase : public FaultCase {
 public:
  explicit FixtureFaultCase(SequenceFixture& fixture) : fixture_(fixture) {}
  void prepare() override { was_ = fixture_.runtime().memory(); }
  void check_unchanged() override { fixture_.expect_as_before(was_); }
  void check_done() override { fixture_.expect_lengths(); }
  void undo() override {}

 protected:
  SequenceFixture& fixture_;
  KvMemory was_;
};

class StepFaultCase final : public FixtureFaultCase {
 public:
  StepFaultCase(SequenceFixture& fixture, std::vector<FixturePart> parts)
      : FixtureFaultCase(fixture), parts_(std::move(parts)) {}
  // Runs the step once before, so that memory that the runtime keeps is allocated.
  void prepare() override {
    fixture_.step(parts_);
    roll_back();
    FixtureFaultCase::prepare();
  }
  void call() override { fixture_.step(parts_); }
  // A step that had begun has all its memory.
  void check_unchanged() override { fixture_.expect_books(); }
  void check_done() override { EXPECT_EQ(fixture_.difference(), ""); }
  void undo() override { roll_back(); }

 private:
  void roll_back() {
    for (const FixturePart& part : parts_) {
      fixture_.runtime().truncate(part.id, static_cast<int64_t>(fixture_.history(part.id).size()));
    }
  }
  const std::vector<FixturePart> parts_;
};

// A first step after a fork inside a page: the page is copied before it is written.
class ForkedStepFaultCase final : public FixtureFaultCase {
 public:
  using FixtureFaultCase::FixtureFaultCase;
  void prepare() override {
    child_ = fixture_.runtime().fork(fixture_.a(), 100);
    const History& parent = fixture_.history(fixture_.a());
    fixture_.history(child_) = History(parent.begin(), parent.begin() + 100);
    FixtureFaultCase::prepare();
  }
  void call() override { fixture_.step({{child_, 40, StepMode::kPrefill}}); }
  void check_unchanged() override {
    fixture_.expect_books();
    EXPECT_EQ(fixture_.runtime().length(child_), 100);
  }
  void check_done() override { EXPECT_EQ(fixture_.difference(), ""); }
  void undo() override { fixture_.runtime().free(child_); }

 private:
  SequenceId child_{};
};

class CallFaultCase final : public FixtureFaultCase {
 public:
  CallFaultCase(SequenceFixture& fixture, std::function<void()> call, std::function<void()> undo)
      : FixtureFaultCase(fixture), call_(std::move(call)), undo_(std::move(undo)) {}
  // Runs once before, so that memory that the runtime keeps is allocated.
  void prepare() override {
    call_();
    undo_();
    FixtureFaultCase::prepare();
  }
  void call() override { call_(); }
  void undo() override { undo_(); }
  // Checks by a step that the sequences are unchanged.
  void check_done() override {
    FixtureFaultCase::check_done();
    const std::vector<FixturePart> both = {{.id = fixture_.a()}, {.id = fixture_.b()}};
    undo_();
    fixture_.step(both);
    EXPECT_EQ(fixture_.difference(), "");
    for (const FixturePart& part : both) {
      fixture_.runtime().truncate(part.id, static_cast<int64_t>(fixture_.history(part.id).size()));
    }
    call_();
  }

 private:
  const std::function<void()> call_, undo_;
};

const FixtureSetup kSetups[] = {
    {.name = "host"},
    {.name = "predictions", .hot_rows = 60, .depth = 2, .queries = true},
    {.name = "auto", .rows = RowPlacement::kAuto},
    {.name = "device", .rows = RowPlacement::kDevice},
    {.name = "dense", .hot_rows = 0, .dense_layers = {1}}};

class SequenceFaults : public ::testing::TestWithParam<FixtureSetup> {
 protected:
  // Runs the fault case in both fault modes.
  void run(const std::string& what, FaultCase& fault_case, SequenceFixture& fixture,
           int64_t usual) {
    for (const FaultMode mode : {FaultMode::kOnce, FaultMode::kFromThenOn}) {
      const std::string name = std::string(GetParam().name) + ": " + what;
      const FaultCount count =
          inject_faults(name, fixture.injector(), fault_case, planned(name, kCalls, mode, usual));
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
  SequenceFixture fixture(GetParam());
  const FixturePart decode{.id = fixture.a()};
  const FixturePart fill{fixture.b(), 75, StepMode::kPrefill};
  StepFaultCase decoding(fixture, {decode});
  run("decode", decoding, fixture, 5);
  StepFaultCase filling(fixture, {fill});
  run("prefill", filling, fixture, 5);
  StepFaultCase mixed(fixture, {fill, decode});
  run("mixed", mixed, fixture, 5);
  const std::vector<StepSequence> parts = {{fixture.a(), 1, StepMode::kDecode},
                                           {fixture.b(), 75, StepMode::kPrefill}};
  CallFaultCase beginning(
      fixture, [&] { fixture.runtime().begin_step(parts); },
      [&] { fixture.runtime().abort_step(); });
  run("begin_step", beginning, fixture, 2);
  StepFaultCase both(fixture, {decode, {.id = fixture.b()}});
  run("two decoded", both, fixture, 5);
}

TEST_P(SequenceFaults, ForksAndTruncations) {
  SequenceFixture fixture(GetParam());
  Runtime& runtime = fixture.runtime();
  SequenceId child{};
  CallFaultCase fork(
      fixture, [&] { child = runtime.fork(fixture.a(), 100); }, [&] { runtime.free(child); });
  run("fork", fork, fixture, 1);
  ForkedStepFaultCase forked(fixture);
  run("step of a fork", forked, fixture, 5);
  CallFaultCase create(
      fixture, [&] { child = runtime.create(); }, [&] { runtime.free(child); });
  run("create", create, fixture, 1);
  CallFaultCase reserve(
      fixture,
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
  run("reserve", reserve, fixture, 1);
}

TEST_P(SequenceFaults, TruncateAndRead) {
  SequenceFixture fixture(GetParam());
  Runtime& runtime = fixture.runtime();
  // Writes the truncated tokens again.
  class Truncation final : public FixtureFaultCase {
   public:
    using FixtureFaultCase::FixtureFaultCase;
    void call() override { fixture_.runtime().truncate(fixture_.a(), 100); }
    void check_done() override { EXPECT_EQ(fixture_.runtime().length(fixture_.a()), 100); }
    void undo() override {
      fixture_.history(fixture_.a()).resize(100);
      const std::vector<FixturePart> parts = {{fixture_.a(), 50, StepMode::kPrefill}};
      fixture_.step(parts);
      EXPECT_EQ(fixture_.difference(), "");
      fixture_.wrote(parts);
    }
  };
  Truncation truncation(fixture);
  run("truncate", truncation, fixture, 1);
  const Geometry& g = fixture.geometry();
  std::vector<float> k(static_cast<size_t>(20 * g.kv_heads * g.key_dim));
  std::vector<float> v(static_cast<size_t>(20 * g.kv_heads * g.value_dim));
  CallFaultCase read(
      fixture,
      [&] {
        runtime.read(fixture.b(), 1, 30,
                     TensorView::dense(k.data(), DType::kF32, 20, g.kv_heads, g.key_dim),
                     TensorView::dense(v.data(), DType::kF32, 20, g.kv_heads, g.value_dim),
                     fixture.stream());
        fixture.device().synchronize(fixture.stream());
      },
      [] {});
  run("read", read, fixture, 1);
  CallFaultCase metrics(
      fixture,
      [&] {
        runtime.metrics();
        runtime.reset_metrics();
      },
      [] {});
  run("metrics", metrics, fixture, 1);
}

TEST_P(SequenceFaults, Opening) {
  SequenceFixture fixture(GetParam());
  std::unique_ptr<Runtime> second;
  CallFaultCase open(
      fixture,
      [&] {
        second = std::make_unique<Runtime>(fixture.device(), fixture.config(), fixture.geometry(),
                                           DType::kBF16, fixture.slice_dims());
      },
      [&] { second.reset(); });
  run("opening", open, fixture, 1);
}

INSTANTIATE_TEST_SUITE_P(Setups, SequenceFaults, ::testing::ValuesIn(kSetups),
                         [](const auto& setup) { return std::string(setup.param.name); });

}  // namespace
}  // namespace fasa::testing
