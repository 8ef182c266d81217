// Guarantees of the runtime other than exactness: budgets, misuse, counters, memory.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/base/error.h"
#include "tests/support/runs.h"

namespace fasa::testing {
namespace {

using ::testing::HasSubstr;

template <typename E, typename F>
std::string message_of(F&& call) {
  try {
    call();
  } catch (const E& error) {
    return error.what();
  }
  ADD_FAILURE() << "nothing was thrown";
  return "";
}

TEST(Runtime, MisuseIsNamed) {
  RuntimeRun run(RunSetup{.device = "emulated"});
  Runtime& runtime = run.runtime();
  const SequenceId id = runtime.create();
  const auto begin = [&](SequenceId sequence, int tokens, StepMode mode) {
    const StepSequence part{sequence, tokens, mode};
    runtime.begin_step({&part, 1});
  };
  EXPECT_THAT(message_of<UsageError>([&] { begin(SequenceId{77}, 1, StepMode::kDecode); }),
              HasSubstr("sequence 77"));
  EXPECT_THAT(message_of<UsageError>([&] { begin(id, 99, StepMode::kDecode); }),
              HasSubstr("99 new"));
  EXPECT_THAT(message_of<UsageError>([&] { begin(id, 0, StepMode::kPrefill); }),
              HasSubstr("0 new"));
  EXPECT_THAT(message_of<UsageError>([&] { runtime.end_step(); }), HasSubstr("outside a step"));
  EXPECT_THAT(message_of<UsageError>([&] { runtime.fork(id, 1); }), HasSubstr("length, 0"));
  const StepSequence twice[] = {{id, 1, StepMode::kPrefill}, {id, 1, StepMode::kPrefill}};
  EXPECT_THAT(message_of<UsageError>([&] { runtime.begin_step(twice); }), HasSubstr("twice"));

  begin(id, 3, StepMode::kPrefill);
  EXPECT_THAT(message_of<UsageError>([&] { begin(id, 1, StepMode::kDecode); }),
              HasSubstr("inside a step"));
  EXPECT_THAT(message_of<UsageError>([&] { runtime.free(id); }), HasSubstr("inside a step"));
  std::vector<float> data(1000);
  const auto view = ConstTensorView::dense(data.data(), DType::kF32, 3, 2, 20);
  const auto wrong = ConstTensorView::dense(data.data(), DType::kF32, 2, 2, 20);
  EXPECT_THAT(message_of<UsageError>([&] { runtime.append(0, wrong, view, {}); }),
              HasSubstr("k is [2, 2, 20]; expected [3, 2, 20]"));
  EXPECT_THAT(message_of<UsageError>([&] { runtime.append(1, view, view, {}); }),
              HasSubstr("layer 0 of 3 is next"));
  EXPECT_THAT(message_of<UsageError>([&] { runtime.end_step(); }),
              HasSubstr("0 of 3 layers appended"));
  runtime.abort_step();
  runtime.free(id);
  EXPECT_THAT(message_of<UsageError>([&] { runtime.length(id); }), HasSubstr("was freed"));
}

TEST(Runtime, LayersThatShareKeysAndValuesAppendNone) {
  RuntimeRun run(RunSetup{.device = "emulated", .shared_layers = 2});
  Runtime& runtime = run.runtime();
  const SequenceId id = runtime.create();
  run.prefill(id, 1, 100, 100);
  const StepSequence part{id, 1, StepMode::kDecode};
  runtime.begin_step({&part, 1});
  std::vector<float> data(120);
  const auto k = ConstTensorView::dense(data.data(), DType::kF32, 1, 2, 20);
  const auto v = ConstTensorView::dense(data.data(), DType::kF32, 1, 2, 12);
  EXPECT_THAT(message_of<UsageError>([&] { runtime.append(1, k, v, {}); }),
              HasSubstr("append of layer 1: it attends to the keys and values of layer 0"));
  runtime.abort_step();
  run.decode(id, 1, 1);
  // What is read back of a sharing layer is what it attends to.
  std::vector<float> own(2 * 101 * 20), shared(own.size()), values(2 * 101 * 12);
  const auto read = [&](int layer, std::vector<float>& keys) {
    runtime.read(id, layer, 0, TensorView::dense(keys.data(), DType::kF32, 101, 2, 20),
                 TensorView::dense(values.data(), DType::kF32, 101, 2, 12), run.tape().stream());
    run.device().synchronize(run.tape().stream());
  };
  read(0, own);
  read(2, shared);
  EXPECT_EQ(own, shared);
  EXPECT_NE(own, std::vector<float>(own.size()));
  Geometry paged = small_geometry();
  paged.shared_layers = 1;
  EXPECT_THAT(message_of<UsageError>([&] {
                PagedRuntime(run.device(), Config(), paged, DType::kBF16, all_slice_dims(paged),
                             {.num_pages = 8});
              }),
              HasSubstr("geometry.shared_layers = 1"));
}

// At every limit the call either succeeds, or throws and the sequence can continue.
TEST(Runtime, BudgetsLeaveTheSequenceUsable) {
  RuntimeRun roomy(RunSetup{.device = "emulated"});
  const SequenceId twin = roomy.runtime().create();
  roomy.prefill(twin, 1, 100, 100);
  const auto expected = roomy.decode(twin, 1, 1);
  int refused = 0;
  for (uint64_t limit = 40000; limit < 400000; limit += 9000) {
    RuntimeRun run(RunSetup{.device = "emulated", .device_memory = limit, .host_memory = 1 << 20});
    Runtime& runtime = run.runtime();
    const SequenceId id = runtime.create();
    try {
      run.prefill(id, 1, 100, 50);
    } catch (const BudgetError& error) {
      EXPECT_EQ(error.limit(), "device_memory");
      ++refused;
      continue;
    }
    ASSERT_EQ(runtime.length(id), 100);
    const uint64_t before = runtime.memory().device_total();
    const StepSequence huge{id, 40000, StepMode::kPrefill};
    EXPECT_THROW(runtime.begin_step({&huge, 1}), BudgetError);
    EXPECT_EQ(runtime.memory().device_total(), before);
    EXPECT_EQ(runtime.length(id), 100);
    try {
      const auto got = run.decode(id, 1, 1);
      EXPECT_TRUE(same_bits(got[0], expected[0]));
    } catch (const BudgetError&) {
      ++refused;
    }
    EXPECT_EQ(run.device().memory(MemorySpace::kDevice).used_bytes,
              runtime.memory().device_total());
  }
  EXPECT_GT(refused, 0);
}

TEST(Runtime, ReserveMakesLaterStepsSafe) {
  RuntimeRun run(RunSetup{.device = "emulated"});
  const SequenceId id = run.runtime().create();
  run.runtime().reserve(id, 500, 128);
  const uint64_t device = run.runtime().memory().device_total();
  const uint64_t host = run.runtime().memory().host_rows;
  run.prefill(id, 1, 450, 128);
  EXPECT_EQ(run.runtime().memory().device_total(), device);
  run.decode(id, 1, 50);
  EXPECT_LE(run.runtime().memory().device_total(), device);  // the prefill's scratch was freed
  EXPECT_EQ(run.runtime().memory().host_rows, host);
  EXPECT_EQ(run.runtime().length(id), 500);
}

// If a step of two sequences is refused, a sequence with reserved memory still has it, even when
// another one has taken all free memory.
TEST(Runtime, ARefusedStepLeavesWhatWasReserved) {
  for (const RowPlacement rows : {RowPlacement::kHost, RowPlacement::kDevice}) {
    RunSetup setup{.device = "emulated",
                   .rows = rows,
                   .hot_rows = std::nullopt,
                   .depth = 1,
                   .predictor = PredictorKind::kRunnersUp};
    setup.device_memory = uint64_t{16} << 20;
    setup.host_memory = uint64_t{16} << 20;
    int refused = 0;
    for (int64_t n = 1;; ++n) {
      RuntimeRun run(setup);
      Runtime& runtime = run.runtime();
      Device& device = run.device();
      const SequenceId reserved = runtime.create();
      const SequenceId other = runtime.create();
      runtime.reserve(reserved, 200, 64);
      run.prefill(reserved, 1, 150, 64);
      run.prefill(other, 1, 20, 64);  // its tables hold rows, and no slices yet
      const KvMemory before = runtime.memory();
      const uint64_t used = device.memory(MemorySpace::kDevice).used_bytes;
      const StepSequence both[] = {{reserved, 1, StepMode::kDecode},
                                   {other, 900, StepMode::kPrefill}};
      run.device().fail_allocation(n);
      try {
        runtime.begin_step(both);
        runtime.abort_step();
        break;  // nothing left that could be refused
      } catch (const BudgetError&) {
        ++refused;
      }
      run.device().fail_allocation(0);
      EXPECT_EQ(device.memory(MemorySpace::kDevice).used_bytes, used) << "allocation " << n;
      EXPECT_EQ(runtime.memory().device_total(), before.device_total());
      EXPECT_EQ(runtime.memory().host_rows, before.host_rows);
      std::vector<Buffer> taken;
      for (const MemorySpace space : {MemorySpace::kDevice, MemorySpace::kHost}) {
        const MemoryUse use = device.memory(space);
        taken.push_back(device.allocate(space, use.limit_bytes - use.used_bytes, "somebody else"));
      }
      const StepSequence step{reserved, 1, StepMode::kDecode};
      for (int i = 0; i < 50; ++i) {
        ASSERT_NO_THROW(runtime.begin_step({&step, 1})) << "allocation " << n << ", step " << i;
        runtime.abort_step();
      }
      taken.clear();
      run.decode(reserved, 1, 50);
      EXPECT_EQ(runtime.length(reserved), 200);
    }
    EXPECT_GT(refused, 5);
  }
}

TEST(Runtime, FreeingGivesEverythingBack) {
  RuntimeRun run(RunSetup{.device = "emulated"});
  Runtime& runtime = run.runtime();
  const uint64_t empty = runtime.memory().device_total();
  std::vector<SequenceId> ids;
  for (int i = 0; i < 3; ++i) ids.push_back(runtime.create());
  for (const SequenceId id : ids) run.prefill(id, 1, 150, 150);
  ids.push_back(runtime.fork(ids[0], 100));
  run.decode(ids[3], 1, 2);
  for (const SequenceId id : ids) runtime.free(id);
  EXPECT_EQ(runtime.memory().host_rows, 0u);
  EXPECT_EQ(runtime.memory().device_slices, 0u);
  EXPECT_EQ(runtime.memory().device_hot_rows, 0u);
  // Scratch stays, and the next sequence uses it.
  const uint64_t scratch = runtime.memory().device_scratch;
  EXPECT_GT(scratch, empty);
  EXPECT_EQ(runtime.memory().device_total(), scratch);
  const SequenceId next = runtime.create();
  run.prefill(next, 1, 150, 150);
  run.decode(next, 1, 1);
  runtime.free(next);
  EXPECT_EQ(runtime.memory().device_scratch, scratch);
}

TEST(Runtime, CountersAddUp) {
  for (const int hot_rows : {0, 30, 200}) {
    RuntimeRun run(RunSetup{.device = "emulated", .hot_rows = hot_rows});
    const SequenceId id = run.runtime().create();
    run.prefill(id, 1, 300, 300);
    run.runtime().reset_metrics();
    run.decode(id, 1, 5);
    const FetchMetrics metrics = run.runtime().metrics();
    EXPECT_EQ(metrics.decode_steps, 5u);
    // 48 tokens a step, 3 layers, 2 KV heads; 3 sinks and 5 recent of them protected.
    EXPECT_EQ(metrics.rows.protected_rows, 5u * 6 * 8);
    EXPECT_EQ(metrics.rows.protected_rows + metrics.rows.hits + metrics.rows.misses, 5u * 6 * 48);
    EXPECT_EQ(metrics.fetched_bytes, metrics.rows.misses * 64);
    if (hot_rows == 0) {
      EXPECT_EQ(metrics.rows.hits, 0u);
    }
    if (hot_rows == 200) {
      EXPECT_GT(metrics.rows.hits, 0u);
    }
  }
  RuntimeRun run(RunSetup{.device = "emulated", .rows = RowPlacement::kDevice});
  const SequenceId id = run.runtime().create();
  run.prefill(id, 1, 300, 300);
  run.decode(id, 1, 5);
  EXPECT_EQ(run.runtime().metrics().rows.misses, 0u);
}

// Every append-only token is stored once and never moves.
TEST(Runtime, AppendOnlySteps) {
  RuntimeRun run(RunSetup{});
  RuntimeRun attended(RunSetup{});
  const SequenceId id = run.runtime().create();
  const SequenceId twin = attended.runtime().create();
  attended.prefill(twin, 4, 200, 64);
  const Part part{id, 4, 0, 200, StepMode::kPrefill};
  run.tape().begin({&part, 1});
  run.tape().append_only({&part, 1});
  run.runtime().end_step();
  EXPECT_TRUE(same_bits(run.decode(id, 4, 1)[0], attended.decode(twin, 4, 1)[0]));
}

}  // namespace
}  // namespace fasa::testing
