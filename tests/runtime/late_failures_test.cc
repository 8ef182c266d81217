// Work fails when it runs, n = 1, 2, 3, ... until nothing fails: the sequences in that step stay
// failed, the others continue with the bits of an undisturbed run, and all can be freed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>

#include "runtime/base/error.h"
#include "tests/support/late_fault_device.h"
#include "tests/support/runs.h"

namespace fasa::testing {
namespace {

using ::testing::HasSubstr;

const RunSetup kSetups[] = {
    {.device = "emulated", .hot_rows = 30},
    {.device = "emulated", .depth = 2, .prediction_source = PredictionSource::kGoodQueries},
    {.device = "emulated", .depth = 1, .predictor = PredictorKind::kRunnersUp},
    {.device = "emulated", .rows = RowPlacement::kDevice},
    {.device = "emulated", .rows = RowPlacement::kAuto, .hot_rows = 30},
    {.device = "emulated", .hot_rows = 0, .slice = SliceDType::kBF16, .dense_layers = {1}}};

struct LateRun {
  explicit LateRun(const RunSetup& setup)
      : LateRun(std::make_unique<LateFaultDevice>(open()), setup) {}
  LateRun(std::unique_ptr<LateFaultDevice> device, const RunSetup& setup)
      : faults(*device), run(std::move(device), setup) {}

  static std::unique_ptr<Device> open() {
    DeviceOptions options;
    options.name = "emulated";
    options.threads = 2;
    return open_device(options);
  }
  Runtime& runtime() { return run.runtime(); }

  // Uses a stream of its own: a failed stream runs nothing any more.
  std::vector<float> decode(std::vector<Part> parts) {
    Tape tape(run.device(), runtime(), DType::kF32);
    tape.on_begin = run.tape().on_begin;
    return tape.step(parts);
  }
  Part part(SequenceId id, uint64_t seed) {
    return {id, seed, runtime().length(id), 1, StepMode::kDecode};
  }

  LateFaultDevice& faults;
  RuntimeRun run;
};

std::string failure_of(Runtime& runtime, SequenceId id) {
  const StepSequence step{id, 1, StepMode::kDecode};
  try {
    runtime.begin_step({&step, 1});
  } catch (const DeviceError& error) {
    return error.what();
  }
  runtime.abort_step();
  return "";
}

// Runs `at_work` sequences in one step that meets the n-th failure, beside an idle sequence.
class LateFailures {
 public:
  LateFailures(const RunSetup& setup, int at_work) : setup_(setup), at_work_(at_work) {
    LateRun run(setup);
    const SequenceId idle = run.runtime().create();
    run.run.prefill(idle, kIdle, 90, 64);
    for (int i = 0; i < 3; ++i) expected_.push_back(run.decode({run.part(idle, kIdle)}));
  }

  int forks() const { return forks_; }
  // Returns false if no operation was left to fail.
  bool meet(int64_t n) {
    SCOPED_TRACE("failure " + std::to_string(n));
    LateRun run(setup_);
    Runtime& runtime = run.runtime();
    const SequenceId idle = runtime.create();
    std::vector<SequenceId> ids;
    for (int i = 0; i < at_work_; ++i) {
      ids.push_back(runtime.create());
      run.run.prefill(ids.back(), static_cast<uint64_t>(i), 100, 100);
    }
    run.run.prefill(idle, kIdle, 90, 64);
    EXPECT_TRUE(same_bits(run.decode({run.part(idle, kIdle)}), expected_[0]));
    static_cast<void>(runtime.metrics());  // the failed work is no longer under way
    run.faults.fail_late(n);
    const bool failed = work(run, ids);
    run.faults.fail_late(0);
    if (!failed) return false;
    if (const auto child = fork_of(runtime, ids[0])) ids.push_back(*child);

    // Either a call waits for the work, or the next step checks.
    run.faults.let_all_run();
    if (n % 2 == 0) {
      EXPECT_NO_THROW(static_cast<void>(runtime.metrics()));
    }
    EXPECT_TRUE(same_bits(run.decode({run.part(idle, kIdle)}), expected_[1]));
    for (const SequenceId id : ids) EXPECT_THAT(failure_of(runtime, id), HasSubstr("injected"));
    forks_ += static_cast<int>(ids.size()) - at_work_;
    EXPECT_THROW(runtime.fork(ids[0], 10), DeviceError);
    EXPECT_THROW(runtime.truncate(ids[0], 10), DeviceError);
    for (const SequenceId id : ids) EXPECT_NO_THROW(runtime.free(id));
    EXPECT_NO_THROW(runtime.reset_metrics());
    EXPECT_TRUE(same_bits(run.decode({run.part(idle, kIdle)}), expected_[2]));
    EXPECT_EQ(runtime.metrics().decode_steps, 1u);
    EXPECT_NO_THROW(runtime.free(idle));
    EXPECT_EQ(runtime.memory().host_rows, 0u);
    EXPECT_EQ(runtime.memory().device_slices, 0u);
    EXPECT_EQ(runtime.memory().device_hot_rows, 0u);
    return true;
  }

 private:
  static constexpr uint64_t kIdle = 77;

  // True if something failed, in the step or after it.
  bool work(LateRun& run, const std::vector<SequenceId>& ids) {
    std::vector<Part> parts;
    for (size_t i = 0; i < ids.size(); ++i) parts.push_back(run.part(ids[i], i));
    Tape tape(run.faults.inner(), run.runtime(),
              DType::kF32);  // only the runtime's own work fails
    tape.on_begin = run.run.tape().on_begin;
    try {
      tape.begin(parts);
    } catch (const DeviceError&) {
      return true;  // the step never began
    }
    try {
      tape.layers(parts);
      run.runtime().end_step();
    } catch (const DeviceError&) {
      EXPECT_NO_THROW(run.runtime().abort_step());
    }
    return run.faults.fired();
  }

  // Made before the failure shows, if it does not show already.
  static std::optional<SequenceId> fork_of(Runtime& runtime, SequenceId id) {
    try {
      return runtime.fork(id, 10);
    } catch (const DeviceError&) {
      return {};
    }
  }

  const RunSetup setup_;
  const int at_work_;
  int forks_ = 0;
  std::vector<std::vector<float>> expected_;
};

TEST(LateFailures, StayWithTheSequenceAtWork) {
  for (const RunSetup& setup : kSetups) {
    LateFailures failures(setup, 1);
    int64_t met = 0;
    while (failures.meet(met + 1) && !::testing::Test::HasFailure()) ++met;
    EXPECT_GT(met, setup.rows == RowPlacement::kDevice ? 4 : 40);  // with one tier little is copied
    EXPECT_GT(failures.forks(), 0);
  }
}

TEST(LateFailures, StayWithAllSequencesOfTheStep) {
  LateFailures failures(kSetups[0], 3);
  int64_t met = 0;
  while (failures.meet(met + 1) && !::testing::Test::HasFailure()) ++met;
  EXPECT_GT(met, 40);
}

// Reading rows back changes no sequence, so its failure affects none.
TEST(LateFailures, OfAReadStayWithItsStream) {
  LateRun run(kSetups[0]);
  Runtime& runtime = run.runtime();
  const SequenceId id = runtime.create();
  run.run.prefill(id, 5, 100, 100);
  const Stream stream = run.run.device().create_stream(StreamPriority::kNormal, "reader");
  std::vector<float> k(100 * 2 * 20), v(100 * 2 * 12);
  run.run.device().launch(stream.view(), "injected",
                          []() -> KernelWork { throw std::runtime_error("injected"); });
  runtime.read(id, 0, 0, TensorView::dense(k.data(), DType::kF32, 100, 2, 20),
               TensorView::dense(v.data(), DType::kF32, 100, 2, 12), stream.view());
  EXPECT_THROW(run.run.device().synchronize(stream.view()), DeviceError);
  EXPECT_NO_THROW(static_cast<void>(runtime.metrics()));
  EXPECT_EQ(run.run.decode(id, 5, 2).size(), 2u);
  EXPECT_EQ(failure_of(runtime, id), "");
}

}  // namespace
}  // namespace fasa::testing
