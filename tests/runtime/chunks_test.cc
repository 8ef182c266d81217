// Prompts that go layer by layer: the bits of steps, whatever comes between two pieces.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "runtime/base/error.h"
#include "tests/support/runs.h"

namespace fasa::testing {
namespace {

using Outputs = std::vector<std::vector<float>>;
using ::testing::HasSubstr;

constexpr int kPrompt = 333;
constexpr int kSteps = 9;

void expect_same(const Outputs& a, const Outputs& b, const std::string& what) {
  ASSERT_EQ(a.size(), b.size()) << what;
  for (size_t i = 0; i < a.size(); ++i) {
    ASSERT_TRUE(same_bits(a[i], b[i])) << what << ": differs at token " << i;
  }
}

Outputs by_steps(const RunSetup& setup, const Geometry& geometry, int chunk = kPrompt) {
  RuntimeRun run(setup, geometry);
  const SequenceId id = run.runtime().create();
  Outputs outputs = run.prefill(id, 1, kPrompt, chunk);
  for (auto& step : run.decode(id, 1, kSteps)) outputs.push_back(std::move(step));
  return outputs;
}

Outputs by_layers(const RunSetup& setup, const Geometry& geometry, int chunk, int piece) {
  RuntimeRun run(setup, geometry);
  const SequenceId id = run.runtime().create();
  Outputs outputs = run.prefill_by_layers(id, 1, kPrompt, chunk, piece);
  for (auto& step : run.decode(id, 1, kSteps)) outputs.push_back(std::move(step));
  return outputs;
}

TEST(Chunks, EveryChunkAndPieceGivesTheBitsOfSteps) {
  for (const RowDType rows : {RowDType(DType::kBF16), RowDType(RowDType::kInt8)}) {
    const Geometry geometry = small_geometry(rows);
    const Outputs base = by_steps({.row_dtype = rows}, geometry);
    for (RunSetup setup :
         {RunSetup{}, RunSetup{.device = "emulated"}, RunSetup{.device = "emulated", .hot_rows = 0},
          RunSetup{.device = "emulated", .hot_rows = 1000},
          RunSetup{.device = "emulated", .rows = RowPlacement::kDevice},
          RunSetup{.device = "emulated", .rows = RowPlacement::kAuto},
          RunSetup{.device = "emulated", .streams = 1}}) {
      setup.row_dtype = rows;
      for (const auto& [chunk, piece] :
           {std::pair{kPrompt, kPrompt}, {kPrompt, 64}, {192, 50}, {100, 33}, {128, 128}, {7, 3}}) {
        if (chunk == 7 && setup.hot_rows != 64) continue;
        expect_same(
            base, by_layers(setup, geometry, chunk, piece),
            setup.device + " chunk " + std::to_string(chunk) + " piece " + std::to_string(piece));
      }
    }
  }
}

TEST(Chunks, WindowsAndSharedLayers) {
  Geometry windows = small_geometry();
  windows.layers = 5;
  windows.windows = {0, 90, 37, 0, 64};
  Geometry narrow = windows;
  narrow.windows.assign(5, 90);
  Geometry shared = windows;
  shared.windows = {37, 0, 37, 0, 37};
  struct Case {
    Geometry geometry;
    int shared_layers;
  };
  for (const Case& one : {Case{windows, 0}, Case{narrow, 0}, Case{shared, 2}}) {
    const RunSetup base_setup{.dense_layers = {1}, .shared_layers = one.shared_layers};
    const Outputs base = by_steps(base_setup, one.geometry);
    for (const auto rows : {RowPlacement::kHost, RowPlacement::kDevice}) {
      for (const auto& [chunk, piece] : {std::pair{200, 64}, {kPrompt, 100}, {130, 31}}) {
        RunSetup setup = base_setup;
        setup.device = "emulated";
        setup.rows = rows;
        expect_same(base, by_layers(setup, one.geometry, chunk, piece),
                    "chunk " + std::to_string(chunk));
      }
    }
  }
}

// Steps of others, forks, cuts and dropped chunks come between; memory comes and goes.
TEST(Chunks, OthersGoOnBetweenPieces) {
  for (const RowPlacement rows : {RowPlacement::kHost, RowPlacement::kAuto}) {
    for (const std::optional<uint64_t> memory :
         {std::optional<uint64_t>(), std::optional<uint64_t>(700'000)}) {
      const RunSetup setup{
          .device = "emulated", .rows = rows, .hot_rows = 60, .device_memory = memory};
      const Geometry geometry = small_geometry();
      const Outputs base = by_steps({}, geometry);
      RuntimeRun fresh({});
      const SequenceId twin = fresh.runtime().create();
      fresh.prefill(twin, 2, 150, 150);
      const Outputs beside = fresh.decode(twin, 2, 200);

      RuntimeRun run(setup, geometry);
      const SequenceId other = run.runtime().create();
      run.prefill(other, 2, 150, 150);
      const SequenceId id = run.runtime().create();
      std::mt19937 random(5);
      Outputs decoded;
      const auto between = [&] {
        const auto what = random() % 4;
        if (what < 2 && decoded.size() < beside.size()) {
          decoded.push_back(run.decode(other, 2, 1).front());
        } else if (what == 2) {
          const SequenceId child = run.runtime().fork(other, run.runtime().length(other) - 70);
          run.prefill(child, 3, 90, 50);
          run.runtime().free(child);
        }
      };
      Outputs outputs = run.prefill_by_layers(id, 1, kPrompt, 200, 40, between);
      for (auto& step : run.decode(id, 1, kSteps)) outputs.push_back(std::move(step));
      expect_same(base, outputs, "the prompt");
      ASSERT_GT(decoded.size(), 3u);
      expect_same({beside.begin(), beside.begin() + static_cast<ptrdiff_t>(decoded.size())},
                  decoded, "the other sequence");
    }
  }
}

// Wherever a chunk is dropped, the sequence is as before, and goes on.
TEST(Chunks, ADroppedChunkLeavesNothing) {
  const Outputs base = by_steps({}, small_geometry());
  for (const RowPlacement rows :
       {RowPlacement::kHost, RowPlacement::kAuto, RowPlacement::kDevice}) {
    for (const int64_t whole : {0, 100, 128}) {
      for (const int pieces : {0, 1, 3, 5, 6}) {
        RuntimeRun run({.device = "emulated", .rows = rows});
        Runtime& runtime = run.runtime();
        const SequenceId id = runtime.create();
        Outputs outputs = run.prefill_by_layers(id, 1, whole, 100, 64);
        const KvMemory before = runtime.memory();
        runtime.prompts().open_chunk(id, 100);
        for (int i = 0; i < pieces; ++i) {
          run.tape().piece({id, 99, whole + i % 2 * 50, 50, StepMode::kPrefill}, i / 2);
        }
        if (pieces == 5) runtime.prompts().begin_piece(id, 2, 50);
        runtime.prompts().drop_chunk(id);
        EXPECT_EQ(runtime.length(id), whole);
        EXPECT_EQ(runtime.memory().device_extra, before.device_extra);
        for (auto& token : run.prefill_by_layers(id, 1, kPrompt - whole, 150, 64)) {
          outputs.push_back(std::move(token));
        }
        for (auto& step : run.decode(id, 1, kSteps)) outputs.push_back(std::move(step));
        expect_same(base, outputs, std::to_string(pieces) + " pieces");
        runtime.prompts().open_chunk(id, 10);
        runtime.free(id);  // drops it
        EXPECT_THROW(runtime.length(id), UsageError);
      }
    }
  }
}

// Only appending gives the same rows.
TEST(Chunks, PiecesNeedNotAttend) {
  const Geometry geometry = small_geometry();
  RuntimeRun run({.device = "emulated"}, geometry);
  const SequenceId id = run.runtime().create();
  run.runtime().prompts().open_chunk(id, kPrompt);
  for (int layer = 0; layer < geometry.layers; ++layer) {
    run.tape().piece({id, 1, 0, 200, StepMode::kPrefill}, layer, layer < 2);
    run.tape().piece({id, 1, 200, kPrompt - 200, StepMode::kPrefill}, layer, layer < 2);
  }
  run.runtime().prompts().close_chunk(id);
  Outputs base = by_steps({}, geometry);
  base.erase(base.begin(), base.begin() + kPrompt);
  expect_same(base, run.decode(id, 1, kSteps), "decoded");
}

// The rows of a layer come back once a chunk: here all earlier pages, in each of three layers.
TEST(Chunks, RowsComeBackOnceAChunkAndLayer) {
  const Geometry geometry = small_geometry();
  RuntimeRun run({.device = "emulated"}, geometry);
  Runtime& runtime = run.runtime();
  const SequenceId id = runtime.create();
  runtime.reserve(id, 512, 64);
  runtime.reset_metrics();
  run.prefill_by_layers(id, 1, 512, 128, 20);
  const uint64_t page = 64 * 2 * 64;  // two KV heads, rows of (20 + 12) x 2 bytes
  EXPECT_EQ(runtime.metrics().bytes.prompt, 3u * (0 + 2 + 4 + 6) * page);
  EXPECT_EQ(runtime.metrics().bytes.write_back, 3u * 8 * page);
}

template <typename Call>
std::string error_of(const Call& call) {
  try {
    call();
  } catch (const UsageError& error) {
    return error.what();
  }
  return "no error";
}

TEST(Chunks, Misuse) {
  RuntimeRun run({.device = "emulated"});
  Runtime& runtime = run.runtime();
  const SequenceId id = runtime.create();
  const SequenceId other = runtime.create();
  run.prefill(id, 1, 70, 70);
  EXPECT_THAT(error_of([&] { runtime.prompts().open_chunk(id, 0); }), HasSubstr("allowed: 1 to"));
  EXPECT_THAT(error_of([&] { runtime.prompts().begin_piece(id, 0, 1); }),
              HasSubstr("no open chunk"));
  EXPECT_THAT(error_of([&] { runtime.prompts().end_piece(); }), HasSubstr("outside a piece"));
  EXPECT_THAT(error_of([&] { runtime.prompts().drop_chunk(id); }), HasSubstr("no open chunk"));
  runtime.prompts().open_chunk(id, 20);
  EXPECT_THAT(error_of([&] { runtime.prompts().open_chunk(other, 20); }),
              HasSubstr("another chunk"));
  EXPECT_THAT(error_of([&] { runtime.prompts().begin_piece(other, 0, 1); }),
              HasSubstr("no open chunk"));
  EXPECT_THAT(error_of([&] { runtime.prompts().begin_piece(id, 1, 1); }),
              HasSubstr("layer 0, the next"));
  EXPECT_THAT(error_of([&] { runtime.prompts().begin_piece(id, 0, 21); }),
              HasSubstr("allowed: 1 to 20"));
  EXPECT_THAT(error_of([&] { runtime.prompts().close_chunk(id); }),
              HasSubstr("0 of 3 layers done"));
  EXPECT_THAT(error_of([&] { runtime.prompts().begin_linear_piece(id, 0, 1, {}); }),
              HasSubstr("all 0 layers"));
  const StepSequence part{id, 1, StepMode::kDecode};
  for (const auto& call : std::vector<std::function<void()>>{
           [&] {
             runtime.begin_step({&part, 1});
           },
           [&] { runtime.reserve(id, 500, 1); }, [&] { runtime.fork(id, 70); },
           [&] { runtime.truncate(id, 10); }, [&] { runtime.set_rollback_tokens(id, 5); }}) {
    EXPECT_THAT(error_of(call), HasSubstr("open chunk"));
  }
  runtime.prompts().begin_piece(id, 0, 20);
  EXPECT_THAT(error_of([&] { runtime.prompts().end_piece(); }), HasSubstr("before the append"));
  EXPECT_THAT(error_of([&] { runtime.end_step(); }), HasSubstr("call end_piece"));
  EXPECT_THAT(error_of([&] { runtime.abort_step(); }), HasSubstr("call drop_chunk"));
  EXPECT_THAT(error_of([&] { runtime.prompts().begin_piece(id, 0, 1); }),
              HasSubstr("inside a step"));
  runtime.prompts().drop_chunk(id);
  EXPECT_EQ(runtime.length(id), 70);
  run.decode(id, 1, 1);
}

// A chunk takes what is free and gives up nothing.
TEST(Chunks, WithoutMemoryNothingChanges) {
  const Geometry geometry = small_geometry();
  uint64_t used = 0;
  for (const bool tight : {false, true}) {
    RuntimeRun run({.device = "emulated",
                    .device_memory = tight ? std::optional(used + 45'000) : std::nullopt},
                   geometry);
    Runtime& runtime = run.runtime();
    const SequenceId id = runtime.create();
    runtime.reserve(id, kPrompt + kSteps, 100);
    used = run.inner().memory(MemorySpace::kDevice).used_bytes;
    if (tight) {
      EXPECT_THROW(runtime.prompts().open_chunk(id, kPrompt), BudgetError);
      EXPECT_EQ(run.inner().memory(MemorySpace::kDevice).used_bytes, used);
    } else {
      EXPECT_EQ(runtime.prompts().chunk_bytes(id, kPrompt), 6u * 64 * 2 * 64);
    }
    EXPECT_EQ(run.prefill(id, 1, kPrompt, 20).size(), static_cast<size_t>(kPrompt));
  }
}

// Device copies of rows: others' give their memory up for a chunk, and its own pages get some of
// what is left.
TEST(Chunks, CopiesGiveUpTheirMemory) {
  const Geometry geometry = small_geometry();
  const uint64_t layer_page = 64 * 2 * 64, page = 3 * layer_page;
  const Outputs base = by_steps({}, geometry);
  RunSetup setup{.device = "emulated", .rows = RowPlacement::kAuto};
  for (const bool tight : {false, true}) {
    if (tight) setup.device_memory = 1'000'000;
    RuntimeRun run(setup, geometry);
    Runtime& runtime = run.runtime();
    const auto free = [&] {
      const MemoryUse use = run.inner().memory(MemorySpace::kDevice);
      return use.limit_bytes - use.used_bytes;
    };
    const SequenceId other = runtime.create(), id = runtime.create();
    run.prefill(other, 2, 2000, 100);
    const uint64_t lent = runtime.memory().device_rows;
    EXPECT_GE(runtime.prompts().chunk_room(), free() + lent);
    Buffer others;
    if (tight) {
      constexpr uint64_t kLeft = 20'000;
      others = run.inner().allocate(MemorySpace::kDevice, free() - kLeft, "others");
      EXPECT_LT(kLeft, runtime.prompts().chunk_bytes(id, 200));
      EXPECT_GT(lent, 6 * layer_page);
    }
    Outputs outputs = run.prefill_by_layers(id, 1, 200, 200, 50);
    if (tight) {
      EXPECT_LT(runtime.memory().device_rows, lent);
    } else {
      EXPECT_EQ(runtime.memory().device_rows, lent + 4 * page);
    }
    for (auto& token : run.prefill_by_layers(id, 1, kPrompt - 200, 100, 50)) {
      outputs.push_back(std::move(token));
    }
    for (auto& step : run.decode(id, 1, kSteps)) outputs.push_back(std::move(step));
    expect_same(base, outputs, tight ? "tight" : "free");
  }
}

}  // namespace
}  // namespace fasa::testing
