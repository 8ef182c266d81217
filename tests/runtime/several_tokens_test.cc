// Decode steps of several tokens: each token gets, bit for bit, what it gets in a step of its own,
// and tokens that do not stay leave no trace.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "offload/timeline/timeline.h"
#include "tests/support/fake_cuda.h"
#include "tests/support/interpreted_kernels.h"
#include "tests/support/runs.h"

namespace fasa::testing {
namespace {

struct Prompt {
  uint64_t seed;
  int tokens;
};
const std::vector<Prompt> kPrompts = {{1, 150}, {2, 40}, {3, 250}};
constexpr size_t kDecoded = 32;

// A sequence, the seed of each of its decoded tokens, and their outputs.
struct Text {
  SequenceId id;
  uint64_t seed;  // of its prompt
  std::vector<uint64_t> seeds = {};
  std::vector<std::vector<float>> outputs = {};
};

std::vector<Text> start(RuntimeRun& run, const std::vector<Prompt>& prompts = kPrompts) {
  std::vector<Text> texts;
  for (const Prompt& prompt : prompts) {
    texts.push_back({run.runtime().create(), prompt.seed});
    run.prefill(texts.back().id, prompt.seed, prompt.tokens, 70);
  }
  return texts;
}

// Steps of drawn numbers of tokens, of which drawn numbers stay. The seed is another in each step,
// so that other tokens replace those that do not stay.
void decode_several(RuntimeRun& run, std::vector<Text>& texts, uint32_t seed,
                    size_t decoded = kDecoded) {
  std::mt19937 random(seed);
  const auto drawn = [&](int most) {
    return 1 + static_cast<int>(random() % static_cast<uint32_t>(most));
  };
  Runtime& runtime = run.runtime();
  for (uint64_t step = 100;; ++step) {
    std::vector<Part> parts;
    std::vector<int> kept;
    std::vector<Text*> members;
    for (Text& text : texts) {
      const int left = static_cast<int>(decoded - text.seeds.size());
      if (left == 0 || (texts.size() > 1 && random() % 4 == 0)) continue;
      const SequenceInfo info = runtime.info(text.id);
      const bool may_drop = random() % 5 > 0;
      const int count = std::min(left, drawn(may_drop ? info.max_drafted : info.max_decoded));
      parts.push_back({text.id, step, info.length, count, StepMode::kDecode});
      kept.push_back(may_drop ? drawn(count) : count);
      members.push_back(&text);
    }
    const auto done = [&](const Text& text) { return text.seeds.size() == decoded; };
    if (parts.empty() && std::all_of(texts.begin(), texts.end(), done)) return;
    if (parts.empty()) continue;
    run.tape().begin(parts);
    std::vector<std::vector<float>> outputs;
    run.append_split(run.tape().layers(parts), static_cast<int>(tokens_of(parts)), outputs);
    runtime.end_step(kept);
    size_t first = 0;
    for (size_t i = 0; i < parts.size(); ++i) {
      const auto stay = static_cast<size_t>(kept[i]);
      members[i]->seeds.insert(members[i]->seeds.end(), stay, step);
      for (size_t at = first; at < first + stay; ++at) members[i]->outputs.push_back(outputs[at]);
      first += static_cast<size_t>(parts[i].tokens);
    }
  }
}

// The same tokens one by one, in another runtime.
std::vector<std::vector<float>> one_by_one(RuntimeRun& run, const Text& text, const Text& prompt) {
  std::vector<std::vector<float>> outputs;
  for (const uint64_t seed : text.seeds) {
    const Part part{prompt.id, seed, run.runtime().length(prompt.id), 1, StepMode::kDecode};
    outputs.push_back(run.tape().step({&part, 1}));
  }
  return outputs;
}

void expect_as_one_by_one(RuntimeRun& several, RuntimeRun& single,
                          const std::vector<Prompt>& prompts = kPrompts,
                          size_t decoded = kDecoded) {
  std::vector<Text> texts = start(several, prompts);
  decode_several(several, texts, 7, decoded);
  const std::vector<Text> same = start(single, prompts);
  for (size_t i = 0; i < texts.size(); ++i) {
    const auto expected = one_by_one(single, texts[i], same[i]);
    ASSERT_EQ(texts[i].outputs.size(), expected.size());
    for (size_t token = 0; token < expected.size(); ++token) {
      ASSERT_TRUE(same_bits(texts[i].outputs[token], expected[token]))
          << "sequence " << i << ", token " << token;
    }
  }
}
void expect_as_one_by_one(const RunSetup& setup, const Geometry& geometry) {
  RuntimeRun several(setup, geometry), single(setup, geometry);
  expect_as_one_by_one(several, single);
}

TEST(SeveralTokens, AreAsIfTheyCameOneByOne) {
  const RunSetup setups[] = {
      {},
      {.device = "emulated", .rows = RowPlacement::kDevice},
      {.device = "emulated"},
      {.device = "emulated", .hot_rows = 0},
      {.device = "emulated", .hot_rows = 20, .low_bit_tokens = kAllOthers},
      {.device = "emulated", .hot_rows = 48, .head_groups = 2, .low_bit_tokens = 30},
      {.device = "emulated", .rows = RowPlacement::kAuto, .hot_rows = 60},
      {.device = "emulated", .hot_rows = std::nullopt, .depth = 1},
      {.device = "emulated", .hot_rows = 400, .depth = 1, .predictor = PredictorKind::kRunnersUp},
      {.device = "emulated", .depth = 2, .prediction_source = PredictionSource::kGoodQueries},
      {.device = "emulated",
       .hot_rows = 70,
       .prediction_source = PredictionSource::kRandom,
       .max_steps = 20},
      {.device = "emulated", .shared_layers = 1, .max_steps = 3},
      {.device = "emulated", .dense_layers = {1}},
      {.device = "emulated", .kind = SelectionKind::kFull},
      {.device = "emulated", .row_dtype = RowDType::kInt8}};
  for (const RunSetup& setup : setups) {
    SCOPED_TRACE(&setup - setups);
    expect_as_one_by_one(setup, small_geometry(setup.row_dtype));
  }
}

// Two tokens of groups of three query heads, where hot slots hold two sets of 48 rows and there is
// memory for their scratch.
TEST(SeveralTokens, SelectTogether) {
  struct Case {
    int hot_rows;
    bool refused;
  };
  for (const auto& [hot_rows, refused] : {Case{95, false}, {96, false}, {96, true}}) {
    RuntimeRun run({.device = "emulated",
                    .hot_rows = hot_rows,
                    .head_groups = 1,
                    .low_bit_tokens = kAllOthers});
    const SequenceId id = run.runtime().create();
    run.prefill(id, 1, 249, 249);
    run.decode(id, 1, 1);
    const std::vector<Part> parts = {{id, 2, 250, 4, StepMode::kDecode}};
    Timeline timeline;
    run.device().set_timeline(&timeline);
    if (refused) run.device().fail_allocation(1);
    run.tape().begin(parts);
    run.device().fail_allocation(0);
    std::vector<std::vector<float>> outputs;
    run.append_split(run.tape().layers(parts), 4, outputs);
    run.runtime().end_step();
    run.device().set_timeline(nullptr);
    const auto selects = std::ranges::count_if(timeline.entries(), [](const TimelineEntry& entry) {
      return std::string_view(SelectParams::kName) == entry.name;
    });
    EXPECT_EQ(selects, run.runtime().geometry().layers * (hot_rows < 96 || refused ? 4 : 2));
  }
}

// Short sequences read device copies, long ones fetch rows: a round may have the short ones alone.
TEST(SeveralTokens, OfShortSequencesBesideLongOnes) {
  for (const int64_t low_bit_tokens : {int64_t{0}, kAllOthers}) {
    const RunSetup setup{.device = "emulated", .hot_rows = 200, .low_bit_tokens = low_bit_tokens};
    RuntimeRun several(setup), single(setup);
    expect_as_one_by_one(several, single, {{1, 10}, {2, 500}});
  }
}

TEST(SeveralTokens, InLayersWithWindows) {
  for (const std::vector<int>& windows : {std::vector<int>{0, 50, 0}, {70, 50, 90}}) {
    Geometry geometry = small_geometry();
    geometry.windows = windows;
    for (const char* device : {"cpu", "emulated"}) {
      SCOPED_TRACE(device);
      expect_as_one_by_one({.device = device}, geometry);
    }
  }
}

// Setups of the CUDA device: by rounds, and all tokens at once.
std::vector<RunSetup> cuda_setups() {
  return {{.hot_rows = 30},
          {.rows = RowPlacement::kDevice, .low_bit_tokens = kAllOthers},
          {.hot_rows = 0},
          {.hot_rows = 48, .head_groups = 2, .low_bit_tokens = kAllOthers},
          {.hot_rows = 400, .depth = 1, .predictor = PredictorKind::kRunnersUp, .max_steps = 40}};
}
TEST(SeveralTokens, OnTheCudaDeviceOverAFakeRuntime) {
  for (const RunSetup& setup : cuda_setups()) {
    FakeCuda fake;
    RuntimeRun several(open_device(cuda_options(), fake.platform()), setup);
    RuntimeRun single(open_device(cuda_options(), fake.platform()), setup);
    expect_as_one_by_one(several, single);
  }
}

// The first two setups: more take minutes.
TEST(SeveralTokens, OfInterpretedKernels) {
  const std::vector<RunSetup> setups = cuda_setups();
  for (const RunSetup& setup : std::span(setups).first(2)) {
    FakeCuda fake;
    RuntimeRun several(open_device(cuda_options(), interpreted_platform(fake)), setup);
    RuntimeRun single(open_device(cuda_options(), interpreted_platform(fake)), setup);
    expect_as_one_by_one(several, single, {{1, 70}, {2, 40}}, 8);
  }
}

// Forks and truncations find rows, tails and protected rows as one token at a time left them.
TEST(SeveralTokens, LeaveSequencesAsOneTokenAtATimeDoes) {
  const auto tail_of = [](RuntimeRun& run, SequenceId id) {
    Runtime& runtime = run.runtime();
    std::vector<std::vector<float>> outputs;
    const SequenceId fork = runtime.fork(id, runtime.length(id) - 9);
    for (const auto& one : run.decode(fork, 4, 3)) outputs.push_back(one);
    runtime.truncate(id, runtime.length(id) - 20);
    for (const auto& one : run.prefill(id, 5, 30, 30)) outputs.push_back(one);
    for (const auto& one : run.decode(id, 6, 3)) outputs.push_back(one);
    return outputs;
  };
  const RunSetup setup{.device = "emulated", .hot_rows = 30};
  RuntimeRun several(setup), single(setup);
  std::vector<Text> texts = start(several);
  decode_several(several, texts, 3);
  const std::vector<Text> same = start(single);
  for (size_t i = 0; i < texts.size(); ++i) {
    one_by_one(single, texts[i], same[i]);
    EXPECT_EQ(tail_of(several, texts[i].id), tail_of(single, same[i].id));
  }
}

}  // namespace
}  // namespace fasa::testing
