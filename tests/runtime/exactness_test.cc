// The invariants of design.md, bit for bit: the attended set and the order of sums depend on the
// tokens alone.
#include <gtest/gtest.h>

#include <map>
#include <random>

#include "runtime/base/error.h"
#include "tests/support/runs.h"

namespace fasa::testing {
namespace {

constexpr int kPrompt = 333;
constexpr int kSteps = 9;
constexpr RowDType kRows[] = {RowDType::kBF16, RowDType::kInt8};

using Outputs = std::vector<std::vector<float>>;

// Holds for every row format.
class Exactness : public ::testing::TestWithParam<RowDType> {
 protected:
  static RunSetup of(RunSetup setup) {
    setup.row_dtype = GetParam();
    return setup;
  }
  static Outputs generate(const RunSetup& setup, int chunk = kPrompt);
};

Outputs Exactness::generate(const RunSetup& setup, int chunk) {
  RuntimeRun run(of(setup));
  const SequenceId id = run.runtime().create();
  Outputs outputs = run.prefill(id, 1, kPrompt, chunk);
  for (auto& step : run.decode(id, 1, kSteps)) outputs.push_back(std::move(step));
  return outputs;
}

void expect_same(const Outputs& a, const Outputs& b, const std::string& what) {
  ASSERT_EQ(a.size(), b.size()) << what;
  for (size_t i = 0; i < a.size(); ++i) {
    ASSERT_TRUE(same_bits(a[i], b[i])) << what << ": differs at token " << i;
  }
}

TEST_P(Exactness, DeviceAndPlacement) {
  for (const SliceDType slice : {SliceDType::kInt2, SliceDType::kInt8, SliceDType::kBF16}) {
    const Outputs base = generate({.slice = slice});
    for (const auto rows : {RowPlacement::kHost, RowPlacement::kDevice}) {
      expect_same(base, generate({.device = "emulated", .rows = rows, .slice = slice}),
                  std::string(slice_dtype_name(slice)) + " emulated");
    }
  }
}

TEST_P(Exactness, HotRowsStreamsThreads) {
  const Outputs base = generate({});
  for (const int hot_rows : {0, 1, 20, 40, 64, 1000}) {
    expect_same(base, generate({.device = "emulated", .hot_rows = hot_rows}),
                "hot rows " + std::to_string(hot_rows));
  }
  for (const int streams : {1, 4}) {
    expect_same(base, generate({.device = "emulated", .hot_rows = 33, .streams = streams}),
                "streams " + std::to_string(streams));
  }
  for (const int groups : {1, 2, 4}) {
    for (const int64_t low_bit_tokens : {int64_t{0}, int64_t{60}, kAllOthers}) {
      const RunSetup setup{.device = "emulated",
                           .streams = 3,
                           .head_groups = groups,
                           .low_bit_tokens = low_bit_tokens};
      expect_same(low_bit_tokens == 0 ? base : generate({.low_bit_tokens = low_bit_tokens}),
                  generate(setup), "groups of heads " + std::to_string(groups));
    }
  }
  expect_same(base, generate({.threads = 1}), "one thread on the cpu");
  expect_same(base, generate({.device = "emulated", .threads = 1}), "one thread, emulated");
}

TEST_P(Exactness, PrefillChunks) {
  for (const char* device : {"cpu", "emulated"}) {
    const Outputs base = generate({.device = device});
    for (const int chunk : {1, 7, 64, 100, 257}) {
      expect_same(base, generate({.device = device}, chunk),
                  std::string(device) + " chunk " + std::to_string(chunk));
    }
  }
}

TEST_P(Exactness, EverythingSelectedIsFull) {
  for (const char* device : {"cpu", "emulated"}) {
    for (const auto rows : {RowPlacement::kHost, RowPlacement::kDevice}) {
      const Outputs full = generate({.device = device, .rows = rows, .kind = SelectionKind::kFull});
      for (const int hot_rows : {0, 100, 1000}) {
        const Outputs fasa =
            generate({.device = device, .rows = rows, .hot_rows = hot_rows, .fac_tokens = 10000});
        expect_same(full, fasa, std::string(device) + " hot rows " + std::to_string(hot_rows));
      }
    }
  }
}

TEST_P(Exactness, SelectionChangesTheResult) {  // otherwise the tests above would prove nothing
  const Outputs fasa = generate({});
  const Outputs full = generate({.kind = SelectionKind::kFull});
  EXPECT_FALSE(same_bits(fasa.back(), full.back()));
  EXPECT_TRUE(same_bits(fasa[100], full[100]));  // prefill is exact in both
}

// The second time layers with a window have heads of another shape.
TEST_P(Exactness, DenseLayersAndWindows) {
  Geometry geometry = small_geometry(GetParam());
  geometry.windows = {0, 90, 37};
  for (const HeadShape& heads : {HeadShape{}, HeadShape{1, 36, 43, 36}}) {
    geometry.window_heads = heads;
    const auto run_one = [&](const RunSetup& setup, int chunk) {
      RuntimeRun run(of(setup), geometry);
      const SequenceId id = run.runtime().create();
      Outputs outputs = run.prefill(id, 5, 200, chunk);
      for (auto& step : run.decode(id, 5, 70)) outputs.push_back(std::move(step));
      return outputs;
    };
    const Outputs base = run_one({.dense_layers = {1}}, 200);
    for (const int chunk : {33, 64}) {
      for (const auto rows : {RowPlacement::kHost, RowPlacement::kDevice}) {
        expect_same(base, run_one({.device = "emulated", .rows = rows, .dense_layers = {1}}, chunk),
                    "chunk " + std::to_string(chunk));
      }
    }
  }
}

Geometry five_layers(RowDType rows) {
  Geometry geometry = small_geometry(rows);
  geometry.layers = 5;
  return geometry;
}

// A few steps, an aborted one, a few more.
Outputs prefetched(const RunSetup& setup, StepCounters* rows = nullptr, int steps = 3) {
  RuntimeRun run(setup, five_layers(setup.row_dtype));
  const SequenceId id = run.runtime().create();
  run.prefill(id, 1, 190, 190);
  Outputs outputs = run.decode(id, 1, 3);
  const Part part{id, 99, run.runtime().length(id), 1, StepMode::kDecode};
  run.tape().begin({&part, 1});
  run.tape().layers({&part, 1}, true, 3);
  run.runtime().abort_step();
  for (auto& step : run.decode(id, 1, steps)) outputs.push_back(std::move(step));
  if (rows != nullptr) *rows = run.runtime().metrics().rows;
  return outputs;
}

struct PredictionCase {
  PredictionSource prediction_source;
  PredictorKind predictor;
};
constexpr PredictionCase kPredictionCases[] = {
    {PredictionSource::kNone, PredictorKind::kNone},
    {PredictionSource::kNone, PredictorKind::kRunnersUp},
    {PredictionSource::kGoodQueries, PredictorKind::kAuto},
    {PredictionSource::kPoorQueries, PredictorKind::kAuto},
    {PredictionSource::kRandom, PredictorKind::kAuto}};

class PrefetchExactness : public ::testing::TestWithParam<std::tuple<PredictionCase, RowDType>> {
 protected:
  static PredictionCase who() { return std::get<0>(GetParam()); }
  // Runners-up need eight sets of hot rows.
  static int set_size() { return who().predictor == PredictorKind::kRunnersUp ? 24 : 48; }
  static Outputs of(RunSetup setup, StepCounters* rows = nullptr, int steps = 3) {
    setup.row_dtype = std::get<1>(GetParam());
    return prefetched(setup, rows, steps);
  }
};

TEST_P(PrefetchExactness, DepthHotRowsStreams) {
  const bool listed = who().predictor == PredictorKind::kRunnersUp;
  const int set = set_size();
  const Outputs base = of({.fac_tokens = set, .depth = 0});
  const bool coded = std::get<1>(GetParam()).is_coded();  // coded rows run half of the setups
  for (const std::optional<int> depth : {std::optional<int>(), {0}, {1}, {2}, {3}, {4}}) {
    for (const int hot_rows : {0, 30, 51, 200}) {  // more: all pages have copies
      for (const int streams : {1, 4}) {
        if (coded && (streams == 4) != (hot_rows == 51)) continue;
        StepCounters rows;
        const std::string what = "depth " + std::to_string(depth.value_or(-1)) + " hot rows " +
                                 std::to_string(hot_rows) + " streams " + std::to_string(streams);
        expect_same(base,
                    of({.device = "emulated",
                        .hot_rows = hot_rows,
                        .streams = streams,
                        .head_groups = streams == 4 ? std::optional(2) : std::nullopt,
                        .fac_tokens = set,
                        .depth = depth,
                        .predictor = who().predictor,
                        .prediction_source = who().prediction_source},
                       &rows),
                    what);
        const bool predictions = depth != 0 && hot_rows > set * (listed ? 8 : 1) &&
                                 who().predictor != PredictorKind::kNone;
        // With runners-up, depth auto decides by what it counts.
        if (depth || !listed) {
          EXPECT_EQ(rows.prefetched > 0, predictions) << what;
        }
        EXPECT_LE(rows.prefetched_used, rows.prefetched) << what;
      }
    }
  }
}

// Enough steps for trials of several depths.
TEST_P(PrefetchExactness, AutomaticDepth) {
  constexpr int kLong = 50;
  StepCounters rows;
  const bool listed = who().predictor == PredictorKind::kRunnersUp;
  const RunSetup setup{.device = "emulated",
                       .hot_rows = listed ? 192 : 51,  // fewer than tokens
                       .streams = 2,
                       .fac_tokens = set_size(),
                       .depth = std::nullopt,
                       .predictor = who().predictor,
                       .prediction_source = who().prediction_source,
                       .link_bandwidth = listed ? std::optional(1e9) : std::nullopt};
  expect_same(of({.fac_tokens = set_size(), .depth = 0}, nullptr, kLong), of(setup, &rows, kLong),
              "automatic");
  EXPECT_EQ(rows.prefetched > 0, who().predictor != PredictorKind::kNone);
}

TEST_P(PrefetchExactness, CpuDevice) {  // there is nothing to fetch
  StepCounters rows;
  expect_same(
      of({.depth = 0}),
      of({.depth = 2, .predictor = who().predictor, .prediction_source = who().prediction_source},
         &rows),
      "cpu");
  EXPECT_EQ(rows.prefetched, 0u);
}

std::string name_of_case(const ::testing::TestParamInfo<PrefetchExactness::ParamType>& info) {
  constexpr const char* kNames[] = {"None", "RunnersUp", "GoodQueries", "PoorQueries", "Random"};
  const auto prediction_source = info.index / std::size(kRows);
  return kNames[prediction_source] + std::string(row_dtype_name(std::get<1>(info.param)));
}
INSTANTIATE_TEST_SUITE_P(PredictionSources, PrefetchExactness,
                         ::testing::Combine(::testing::ValuesIn(kPredictionCases),
                                            ::testing::ValuesIn(kRows)),
                         name_of_case);
INSTANTIATE_TEST_SUITE_P(Rows, Exactness, ::testing::ValuesIn(kRows),
                         [](const auto& of) { return std::string(row_dtype_name(of.param)); });

TEST_P(Exactness, PrefetchWithWindowsAndDenseLayers) {
  Geometry geometry = five_layers(GetParam());
  geometry.windows = {0, 90, 37, 0, 64};
  geometry.window_heads = {1, 44, 36, 44};
  const auto run_one = [&](const RunSetup& setup) {
    RuntimeRun run(of(setup), geometry);
    const SequenceId id = run.runtime().create();
    run.prefill(id, 5, 20, 20);
    return run.decode(id, 5, 60);  // from a context smaller than a set to a larger one
  };
  const Outputs base = run_one({.dense_layers = {3}, .depth = 0});
  for (const PredictionSource prediction_source :
       {PredictionSource::kGoodQueries, PredictionSource::kRandom}) {
    expect_same(base,
                run_one({.device = "emulated",
                         .dense_layers = {3},
                         .depth = 2,
                         .prediction_source = prediction_source}),
                "windows");
  }
}

// Layers that read the rows of an earlier one give the bits of layers with copies of these rows.
TEST_P(Exactness, SharedKeysAndValuesGiveTheBitsOfCopies) {
  Geometry plain = five_layers(GetParam());
  Geometry mixed = plain;  // layers 3 and 4 share those of 1 and 2
  mixed.windows = {37, 0, 37, 0, 37};
  mixed.window_heads = {1, 36, 43, 36};
  Geometry behind = mixed;  // layers 3 and 4 share those of 2
  behind.windows = {37, 37, 0, 0, 0};
  struct Case {
    const Geometry& geometry;
    int64_t low_bit_tokens;
  };
  for (const Case& one :
       {Case{plain, 0}, Case{plain, kAllOthers}, Case{mixed, 40}, Case{behind, 0}}) {
    const auto run_one = [&](RunSetup setup, int chunk) {
      setup.fac_tokens = 12;
      setup.low_bit_tokens = one.low_bit_tokens;
      setup.shared_layers = 2;
      RuntimeRun run(of(setup), one.geometry);
      const SequenceId id = run.runtime().create();
      Outputs outputs = run.prefill(id, 5, 300, chunk);
      for (auto& step : run.decode(id, 5, 30)) outputs.push_back(std::move(step));
      return outputs;
    };
    const Outputs base = run_one({.copies = true}, 300);
    expect_same(base, run_one({}, 33), "cpu");
    for (RunSetup setup :
         {RunSetup{.hot_rows = 0}, RunSetup{.hot_rows = 30}, RunSetup{.head_groups = 2},
          RunSetup{.rows = RowPlacement::kDevice}, RunSetup{.rows = RowPlacement::kAuto},
          RunSetup{.hot_rows = 96, .depth = 2, .predictor = PredictorKind::kRunnersUp},
          RunSetup{.hot_rows = 40, .depth = 2, .prediction_source = PredictionSource::kGoodQueries},
          RunSetup{.hot_rows = 40, .depth = 4, .prediction_source = PredictionSource::kRandom}}) {
      setup.device = "emulated";
      expect_same(base, run_one(setup, 67),
                  "hot rows " + std::to_string(setup.hot_rows.value_or(-1)));
    }
  }
}

// A layer among those that share attends to all tokens; the others select.
TEST_P(Exactness, SharedKeysAndValuesWithDenseLayers) {
  for (const int dense : {2, 3, 4}) {
    const auto run_one = [&](RunSetup setup) {
      setup.shared_layers = 2;
      setup.dense_layers = {dense};
      RuntimeRun run(of(setup), five_layers(GetParam()));
      const SequenceId id = run.runtime().create();
      Outputs outputs = run.prefill(id, 5, 200, 90);
      for (auto& step : run.decode(id, 5, 5)) outputs.push_back(std::move(step));
      return outputs;
    };
    const Outputs base = run_one({.copies = true});
    expect_same(base, run_one({}), "cpu");
    expect_same(base, run_one({.device = "emulated"}), "emulated");
  }
}

TEST_P(Exactness, SixteenSequencesTogether) {
  const auto length_of = [](int i) { return 20 + 37 * i; };
  for (const RunSetup& setup :
       {RunSetup{}, RunSetup{.device = "emulated", .hot_rows = 50, .streams = 4},
        RunSetup{
            .device = "emulated", .depth = 2, .prediction_source = PredictionSource::kGoodQueries},
        RunSetup{.device = "emulated",
        .streams = 1,
        .depth = 2,
        .prediction_source = PredictionSource::kRandom}}) {
    std::vector<Outputs> alone;
    for (int i = 0; i < 16; ++i) {
      RuntimeRun run(of(setup));
      const SequenceId id = run.runtime().create();
      run.prefill(id, static_cast<uint64_t>(i), length_of(i), 128);
      alone.push_back(run.decode(id, static_cast<uint64_t>(i), 3));
    }
    RuntimeRun run(of(setup));
    std::vector<SequenceId> ids;
    std::vector<Part> prompts;
    for (int i = 0; i < 16; ++i) {
      ids.push_back(run.runtime().create());
      prompts.push_back(
          {ids.back(), static_cast<uint64_t>(i), 0, length_of(i), StepMode::kPrefill});
    }
    run.tape().step(prompts);
    for (int step = 0; step < 3; ++step) {
      std::vector<Part> parts;
      for (size_t i = 0; i < 16; ++i) {
        parts.push_back({ids[i], i, run.runtime().length(ids[i]), 1, StepMode::kDecode});
      }
      Outputs outputs;
      run.append_split(run.tape().step(parts), 16, outputs);
      for (size_t i = 0; i < 16; ++i) {
        ASSERT_TRUE(same_bits(outputs[i], alone[i][static_cast<size_t>(step)]))
            << setup.device << " sequence " << i << " step " << step;
      }
    }
  }
}

TEST_P(Exactness, PrefillAndDecodeInOneStep) {
  for (const char* device : {"cpu", "emulated"}) {
    const RunSetup setup{.device = device};
    RuntimeRun alone(of(setup));
    const SequenceId a = alone.runtime().create();
    alone.prefill(a, 1, 130, 130);
    const Outputs decoded = alone.decode(a, 1, 1);
    const SequenceId b = alone.runtime().create();
    const Outputs filled = alone.prefill(b, 2, 70, 70);

    RuntimeRun run(of(setup));
    const SequenceId c = run.runtime().create();
    run.prefill(c, 1, 130, 130);
    const SequenceId d = run.runtime().create();
    const Part parts[] = {{d, 2, 0, 70, StepMode::kPrefill}, {c, 1, 130, 1, StepMode::kDecode}};
    Outputs outputs;
    run.append_split(run.tape().step(parts), 71, outputs);
    ASSERT_TRUE(same_bits(outputs[70], decoded[0])) << device;
    for (size_t i = 0; i < 70; ++i) ASSERT_TRUE(same_bits(outputs[i], filled[i])) << device << i;
  }
}

// Random forks, truncations, aborts and frees: every sequence gives the outputs of a new one.
TEST_P(Exactness, RandomSchedules) {
  for (const RunSetup& setup :
       {RunSetup{}, RunSetup{.device = "emulated", .hot_rows = 40},
        RunSetup{.device = "emulated", .rows = RowPlacement::kDevice, .slice = SliceDType::kBF16},
        RunSetup{.device = "emulated", .hot_rows = 60, .low_bit_tokens = 60},
        RunSetup{.device = "emulated", .hot_rows = 60, .low_bit_tokens = kAllOthers},
        RunSetup{.device = "emulated",
        .hot_rows = 96,
        .fac_tokens = 22,
        .predictor = PredictorKind::kRunnersUp},
        RunSetup{
            .device = "emulated", .depth = 2, .prediction_source = PredictionSource::kPoorQueries},
        RunSetup{.device = "emulated", .hot_rows = 60, .low_bit_tokens = 60, .shared_layers = 2},
        RunSetup{.device = "emulated",
        .hot_rows = 96,
        .fac_tokens = 12,
        .shared_layers = 1,
        .predictor = PredictorKind::kRunnersUp},
        RunSetup{.device = "emulated",
        .streams = 4,
        .depth = 1,
        .prediction_source = PredictionSource::kRandom}}) {
    RuntimeRun run(of(setup));
    RunSetup plain = of(setup);
    plain.depth = 0;
    plain.predictor = PredictorKind::kAuto;
    plain.prediction_source = PredictionSource::kNone;
    RuntimeRun fresh(plain);
    std::mt19937 random(7);
    const auto pick = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
    std::vector<SequenceId> live;
    for (int round = 0; round < 60; ++round) {
      const int what = live.empty() ? 0 : pick(7);
      if (what == 0 && live.size() < 6) {
        live.push_back(run.runtime().create());
        run.prefill(live.back(), 3, 1 + pick(200), 1 + pick(150));
      } else if (live.empty()) {
        continue;
      } else {
        const auto at = static_cast<size_t>(pick(static_cast<int>(live.size())));
        const SequenceId id = live[at];
        const auto length = run.runtime().length(id);
        if (what == 1 && live.size() < 6) {
          live.push_back(run.runtime().fork(id, pick(static_cast<int>(length) + 1)));
        } else if (what == 2) {
          run.runtime().truncate(id, pick(static_cast<int>(length) + 1));
        } else if (what == 3) {
          run.runtime().free(id);
          live.erase(live.begin() + static_cast<int64_t>(at));
        } else if (what == 4 && length > 0 && pick(2) == 0) {
          const Part part{id, 98, length, 1, StepMode::kDecode};
          run.tape().begin({&part, 1});
          run.tape().layers({&part, 1}, true, pick(4));
          run.runtime().abort_step();
        } else if (what == 4) {
          const Part part{id, 99, length, 1 + pick(80), StepMode::kPrefill};
          run.tape().begin({&part, 1});
          if (pick(2) == 0) run.tape().layers({&part, 1});
          run.runtime().abort_step();
          EXPECT_EQ(run.runtime().length(id), length);
        } else {
          if (length == 0 || pick(2) == 0) run.prefill(id, 3, 1 + pick(90), 64);
          const Outputs got = run.decode(id, 3, 1 + pick(3));
          const auto from = run.runtime().length(id) - static_cast<int64_t>(got.size());
          const SequenceId twin = fresh.runtime().create();
          fresh.prefill(twin, 3, from, 512);
          expect_same(fresh.decode(twin, 3, static_cast<int>(got.size())), got,
                      setup.device + " round " + std::to_string(round));
          fresh.runtime().free(twin);
        }
      }
    }
  }
}

}  // namespace
}  // namespace fasa::testing
