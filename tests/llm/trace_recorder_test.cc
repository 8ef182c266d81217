#include "runtime/capture/trace_recorder.h"

#include <gtest/gtest.h>

#include <set>

#include "runtime/base/error.h"
#include "runtime/llm/generation/generator.h"
#include "tests/llm/llm_fixture.h"

namespace fasa::llm_test {
namespace {

constexpr int kSteps = 6;

std::vector<int32_t> prompt(size_t tokens) {
  const std::string text = read_file(source_path("models/texts/ruth.txt"));
  std::vector<int32_t> ids;
  for (size_t i = 0; i < tokens; ++i) ids.push_back(static_cast<uint8_t>(text[i]));
  return ids;
}

Config small_config(int64_t tokens) {
  Config config;
  config.selection.fac_tokens = {{.tokens = tokens, .share = 0}};
  return config;
}

TraceOptions small_options() {
  TraceOptions options;
  options.steps = kSteps;
  options.prefill_chunk = 100;
  options.model_name = "needle-3m";
  return options;
}

SelectionTrace record(const std::string& device_name, const Config& config,
                      const TraceOptions& options, size_t tokens = 330) {
  const auto device = open_test_device(device_name);
  Model model = Model::load(bundled_dir(), *device, std::nullopt);
  return record_selection_trace(model, config, prompt(tokens), options);
}

TEST(TraceRecorder, RecordsEveryStepLayerAndHead) {
  const SelectionTrace trace = record("cpu", small_config(48), small_options());
  EXPECT_EQ(trace.steps(), kSteps);
  EXPECT_EQ(trace.context(0), 331);
  EXPECT_EQ(trace.context(kSteps - 1), 330 + kSteps);
  EXPECT_EQ(trace.shape().layers, 4);
  for (int layer = 0; layer < 4; ++layer) {
    EXPECT_EQ(trace.true_set(3, layer, 1).size(), 48u);
    EXPECT_EQ(trace.ranking(3, layer, 1).size(), 4u * 28);
    EXPECT_EQ(trace.runners_up(3, layer, 1).size(), 3u * 28);
  }
}

TEST(TraceRecorder, IsTheSameOnAnyDeviceAndInAnyChunks) {
  const SelectionTrace trace = record("cpu", small_config(48), small_options());
  EXPECT_EQ(record("emulated", small_config(48), small_options()), trace);
  TraceOptions options = small_options();
  options.prefill_chunk = 64;
  EXPECT_EQ(record("cpu", small_config(48), options), trace);
  Config few = small_config(48);
  few.selection.tip_chunks = 8;
  const SelectionTrace natural = record("cpu", few, options);
  options.ranked_dims = FcMap::load(bundled_dir() + "/fc_map.json").slice_dims(32);
  EXPECT_NE(record("cpu", few, options), natural);
}

// With hot rows for all tokens each row is fetched once: the runtime's misses count the distinct
// members of the true sets. With more hot rows, all pages would have copies.
TEST(TraceRecorder, TrueSetsAreWhatTheRuntimeAttendsTo) {
  Config config = small_config(48);
  config.prefetch.depth = 0;  // predicted rows would not count as misses
  config.placement.hot_rows = 327;
  const SelectionTrace trace = record("emulated", config, small_options());
  uint64_t expected = 0;
  for (int layer = 0; layer < 4; ++layer) {
    for (int head = 0; head < 2; ++head) {
      std::set<int32_t> fetched;
      for (int step = 0; step < kSteps; ++step) {
        for (const int32_t position : trace.true_set(step, layer, head)) {
          if (position >= 4 && position < trace.context(step) - 16) fetched.insert(position);
        }
      }
      expected += fetched.size();
    }
  }
  const auto device = open_test_device("emulated");
  Model model = Model::load(bundled_dir(), *device, std::nullopt);
  const Geometry geometry = model.config().geometry();
  Runtime runtime(*device, config, geometry, model.config().row_dtype(), all_slice_dims(geometry),
                  400);
  const auto result =
      generate(model, runtime, prompt(330), {.max_tokens = kSteps + 1, .prefill_chunk = 100}, {});
  ASSERT_EQ(result.decode_steps, kSteps);
  EXPECT_EQ(runtime.metrics().rows.misses, expected);
}

TEST(TraceRecorder, ASetOfEverythingIsEverything) {
  const SelectionTrace trace = record("cpu", small_config(5000), small_options(), 90);
  for (int layer = 0; layer < 4; ++layer) {
    const auto set = trace.true_set(2, layer, 0);
    ASSERT_EQ(set.size(), 93u);
    EXPECT_EQ(set.back(), 92);
    EXPECT_TRUE(trace.runners_up(2, layer, 0).empty());
  }
}

TEST(TraceRecorder, SaysWhatItDoesNotTake) {
  TraceOptions options = small_options();
  EXPECT_THROW(record("cpu", small_config(48), options, 0), UsageError);
  options.steps = 0;
  EXPECT_THROW(record("cpu", small_config(48), options), UsageError);
  options = small_options();
  options.steps = 8192;
  EXPECT_THROW(record("cpu", small_config(48), options), UsageError);
  Config config = small_config(0);
  config.selection.fac_tokens = {{.tokens = 0, .share = 0.5}};
  EXPECT_THROW(record("cpu", config, small_options()), UsageError);
}

// A longer ranking begins with the shorter one: a set of twice the competing tokens is the set and
// the runners-up of the first.
TEST(TraceRecorder, RunnersUpAreWhatALargerSetTakes) {
  const SelectionTrace trace = record("cpu", small_config(48), small_options());
  const SelectionTrace larger = record("cpu", small_config(76), small_options());
  // The first recorded step's queries are the same in the first layer, whatever was attended to.
  for (int head = 0; head < 2; ++head) {
    const auto ranking = trace.ranking(0, 0, head).first(56);
    std::vector<int32_t> sorted(ranking.begin(), ranking.end());
    std::ranges::sort(sorted);
    std::vector<int32_t> competing;
    for (const int32_t position : larger.true_set(0, 0, head)) {
      if (position >= 4 && position < 331 - 16) competing.push_back(position);
    }
    EXPECT_EQ(sorted, competing);
  }
}

TEST(TraceRecorder, TheShippedTracesAreWhole) {
  const SelectionTrace tests =
      SelectionTrace::load(source_path("models/traces/needle-3m-7k.fasatrace"));
  EXPECT_GE(tests.steps(), 64);
  EXPECT_EQ(tests.shape().budget, 128);
  EXPECT_EQ(tests.shape().model, "needle-3m");
  const SelectionTrace usual = SelectionTrace::load(default_selection_trace());
  EXPECT_EQ(usual.steps(), 48);
  EXPECT_EQ(usual.shape().layers, 30);
  EXPECT_GT(usual.shape().bands.back(), 3 * usual.shape().set_ranked());
}

}  // namespace
}  // namespace fasa::llm_test
