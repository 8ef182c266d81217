// A short sequence with rows on the host has device copies of its pages, no hot rows, and no slices
// before a set leaves something out. Later its copies become hot rows. Bits do not depend on it.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <memory>
#include <string>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/catalog/geometry_catalog.h"
#include "tests/support/fault_injector.h"
#include "tests/support/filled_runtime.h"
#include "tests/support/injecting_device.h"
#include "tests/support/queued_steps.h"
#include "tests/support/runs.h"
#include "tests/support/stepped_device.h"

namespace fasa::testing {
namespace {

using Outputs = std::vector<std::vector<float>>;

// Hot rows, their table and protected rows take as much as two pages and a part of a third.
constexpr int kHotRows = 140;
constexpr int kCopied = 2 * kPageTokens;  // tokens of the longest sequence with copies
constexpr int kSet = 48;                  // RunSetup's
constexpr uint64_t kBlock = uint64_t{3} * 2 * kPageTokens * 64;

void add(Outputs& all, Outputs more) {
  for (auto& one : more) all.push_back(std::move(one));
}

void expect_same(const Outputs& a, const Outputs& b, const std::string& what) {
  ASSERT_EQ(a.size(), b.size()) << what;
  for (size_t i = 0; i < a.size(); ++i) {
    ASSERT_TRUE(same_bits(a[i], b[i])) << what << ": differs at output " << i;
  }
}

void abort_a_step(RuntimeRun& run, SequenceId id) {
  const Part part{id, 99, run.runtime().length(id), 1, StepMode::kDecode};
  run.tape().begin({&part, 1});
  run.tape().layers({&part, 1}, true, 2);
  run.runtime().abort_step();
}

// Device memory beyond memory(): memory of others.
uint64_t of_others(RuntimeRun& run) {
  return run.device().memory(MemorySpace::kDevice).used_bytes -
         run.runtime().memory().device_total();
}

struct Member {
  SequenceId id;
  uint64_t seed;
};

Outputs decode_all(RuntimeRun& run, const std::vector<Member>& members, int steps) {
  Outputs all;
  for (int i = 0; i < steps; ++i) {
    std::vector<Part> parts;
    for (const Member& member : members) {
      parts.push_back(
          {member.id, member.seed, run.runtime().length(member.id), 1, StepMode::kDecode});
    }
    all.push_back(run.tape().step(parts));
  }
  return all;
}

// Crosses the lengths where slices begin and where copies become hot rows: alone, in batches, on
// both sides of forks, after truncations and aborted steps, with and without a reservation.
Outputs life(RuntimeRun& run, int chunk) {
  Runtime& runtime = run.runtime();
  const SequenceId a = runtime.create();
  Outputs all = run.prefill(a, 1, kSet - 3, chunk);
  add(all, run.decode(a, 1, 2));
  const SequenceId b = runtime.fork(a, kSet - 8);
  abort_a_step(run, a);
  add(all, run.decode(a, 1, 30));  // over the set and a page's end
  abort_a_step(run, a);
  add(all, decode_all(run, {{a, 1}, {b, 2}}, 12));  // b crosses alone
  runtime.truncate(a, kPageTokens + 3);
  const SequenceId c = runtime.fork(a, kPageTokens - 5);
  add(all, run.prefill(a, 3, kCopied - kPageTokens - 10, chunk));
  add(all, decode_all(run, {{a, 3}, {b, 2}, {c, 4}}, 10));  // a becomes hot
  abort_a_step(run, a);
  add(all, decode_all(run, {{c, 4}, {a, 3}}, 5));
  const SequenceId d = runtime.fork(a, kCopied - 20);  // short again
  const SequenceId e = runtime.fork(a, kCopied + 1);
  runtime.truncate(a, 70);
  add(all, decode_all(run, {{a, 3}, {b, 2}, {c, 4}, {d, 5}, {e, 6}}, 25));
  runtime.reserve(b, 3 * kCopied, 64);
  add(all, decode_all(run, {{b, 2}, {d, 5}}, 3));
  const Part mixed[] = {{b, 2, runtime.length(b), 40, StepMode::kPrefill},
                        {c, 4, runtime.length(c), 1, StepMode::kDecode},
                        {d, 5, runtime.length(d), 130, StepMode::kPrefill}};
  all.push_back(run.tape().step(mixed));
  for (const SequenceId id : {a, c, e}) runtime.free(id);
  add(all, decode_all(run, {{b, 2}, {d, 5}}, 3));
  return all;
}

struct Case {
  std::string name;
  RunSetup setup;
  int chunk;
};

class ShortSequencesOf : public ::testing::TestWithParam<Case> {};

TEST_P(ShortSequencesOf, EveryWayGivesTheSameBits) {
  RunSetup setup = GetParam().setup;
  setup.device = "emulated";
  const int chunk = GetParam().chunk;
  const auto live = [&](RowPlacement rows, std::optional<int> hot_rows) {
    RunSetup one = setup;
    one.rows = rows;
    one.hot_rows = hot_rows;
    RuntimeRun run(one);
    const uint64_t others = of_others(run);
    Outputs outputs = life(run, chunk);
    EXPECT_EQ(of_others(run), others);
    return outputs;
  };
  const Outputs expected = live(RowPlacement::kDevice, kHotRows);
  expect_same(expected, live(RowPlacement::kAuto, kHotRows), "both");
  for (const std::optional<int> hot_rows :
       {std::optional<int>(kHotRows), std::optional<int>(1000), std::optional<int>()}) {
    expect_same(expected, live(RowPlacement::kHost, hot_rows),
                "hot rows " + (hot_rows ? std::to_string(*hot_rows) : "auto"));
  }
}

INSTANTIATE_TEST_SUITE_P(
    Setups, ShortSequencesOf,
    ::testing::Values(
        Case{"plain", {}, 100}, Case{"small_chunks", {}, 7},
        Case{"low_bit", {.low_bit_tokens = 40}, 100},
        Case{"coded", {.row_dtype = RowDType::kInt8, .dense_layers = {1}}, 33},
        Case{"dense_layer", {.dense_layers = {1}}, 70},
        Case{"all_dense", {.kind = SelectionKind::kFull}, 45},
        Case{"predictions", {.depth = 2, .prediction_source = PredictionSource::kGoodQueries}, 100},
        Case{"anything_predicted",
             {.depth = 1, .prediction_source = PredictionSource::kRandom},
             100}),
    [](const auto& one) { return one.param.name; });

KvMemory held(RuntimeRun& run) { return run.runtime().memory(); }

TEST(ShortSequences, HaveCopiesAndThenHotRows) {
  for (const bool reserved : {false, true}) {
    RuntimeRun run({.device = "emulated", .hot_rows = kHotRows});
    const SequenceId id = run.runtime().create();
    if (reserved) run.runtime().reserve(id, kSet, 10);
    run.prefill(id, 1, kSet, 10);
    EXPECT_EQ(held(run).device_rows, kBlock);
    EXPECT_EQ(held(run).host_rows, kBlock);
    EXPECT_EQ(held(run).device_hot_rows, 0u);
    EXPECT_EQ(held(run).device_slices, 0u);
    run.decode(id, 1, 1);  // the set leaves something out
    EXPECT_GT(held(run).device_slices, 0u);
    run.decode(id, 1, kCopied - kSet - 1);
    EXPECT_EQ(held(run).device_rows, 2 * kBlock);
    EXPECT_EQ(held(run).device_hot_rows, 0u);
    EXPECT_EQ(run.runtime().metrics().rows.misses, 0u);
    if (reserved) {
      run.runtime().reserve(id, kCopied + 1, 1);
    } else {
      run.decode(id, 1, 1);
    }
    EXPECT_EQ(held(run).device_rows, 0u);
    const uint64_t hot = held(run).device_hot_rows;
    EXPECT_GT(hot, 2 * kBlock);
    EXPECT_LT(hot, 3 * kBlock);
    run.decode(id, 1, 100);
    EXPECT_EQ(held(run).device_hot_rows, hot);
    run.runtime().truncate(id, 10);  // for good
    run.decode(id, 1, 1);
    EXPECT_EQ(held(run).device_hot_rows, hot);
    EXPECT_EQ(held(run).device_rows, 0u);
  }
}

// Before the change, hot rows were allocated at once.
TEST(ShortSequences, ALongReservationHasNoCopies) {
  RuntimeRun run({.device = "emulated", .hot_rows = kHotRows});
  const SequenceId id = run.runtime().create();
  run.runtime().reserve(id, 1000, 10);
  const uint64_t hot = held(run).device_hot_rows;
  EXPECT_GT(hot, 0u);
  run.prefill(id, 1, 20, 10);
  EXPECT_EQ(held(run).device_rows, 0u);
  EXPECT_EQ(held(run).device_hot_rows, hot);
}

// A step that cannot begin for lack of memory changes nothing, and begins once there is some.
TEST(ShortSequences, AChangeThatDoesNotFitIsUndone) {
  const auto run_one = [](bool short_of_memory) {
    RuntimeRun run(
        {.device = "emulated", .hot_rows = kHotRows, .device_memory = uint64_t{8} << 20});
    const SequenceId id = run.runtime().create();
    Outputs all = run.prefill(id, 1, kCopied, 64);
    if (short_of_memory) {
      const MemoryUse use = run.device().memory(MemorySpace::kDevice);
      Buffer rest =
          run.device().allocate(MemorySpace::kDevice, use.limit_bytes - use.used_bytes, "the rest");
      const KvMemory before = held(run);
      for (int i = 0; i < 3; ++i) {
        EXPECT_THROW(run.decode(id, 1, 1), BudgetError);
        EXPECT_THROW(run.runtime().reserve(id, 10 * kCopied, 1), BudgetError);
        EXPECT_EQ(held(run).device_rows, before.device_rows);
        EXPECT_EQ(held(run).device_slices, before.device_slices);
        EXPECT_EQ(held(run).device_hot_rows, 0u);
        EXPECT_EQ(run.runtime().length(id), kCopied);
      }
    }
    add(all, run.decode(id, 1, 20));
    return all;
  };
  expect_same(run_one(false), run_one(true), "short of memory");
}

// Pages of a short sequence are complete, with slices, wherever they are loaded.
TEST(ShortSequences, AreSavedAndLoaded) {
  const RunSetup setup{.device = "emulated", .hot_rows = kHotRows, .low_bit_tokens = 20};
  for (const int64_t tokens : {int64_t{20}, int64_t{64}, int64_t{100}, int64_t{128}}) {
    for (const int64_t fac_tokens : {48, 500}) {
      RunSetup one = setup;
      one.fac_tokens = fac_tokens;
      RuntimeRun from(one), to(one);
      const SequenceId a = from.runtime().create(), b = to.runtime().create();
      from.prefill(a, 1, tokens, 50);
      const PageBytes bytes = from.runtime().traits().page;
      std::vector<std::byte> rows(bytes.rows), slices(bytes.slices);
      for (int64_t page = 0; page < pages_of(tokens); ++page) {
        const int64_t now = std::min<int64_t>(kPageTokens, tokens - page * kPageTokens);
        const size_t coded = now == kPageTokens ? slices.size() : 0;
        const std::array saved{PageSpans{rows, std::span(slices).first(coded)}};
        from.runtime().exchange().export_pages(a, page, saved);
        const std::array loaded{ConstPageSpans{rows, std::span(slices).first(coded)}};
        to.runtime().exchange().import_pages(b, now, loaded);
      }
      expect_same(from.decode(a, 1, 80), to.decode(b, 1, 80), std::to_string(tokens));
    }
  }
}

// Wherever an export fails, the slices that it made for the copy are gone.
TEST(ShortSequences, AFailedExportLeavesNoSlices) {
  DeviceOptions options;
  options.name = "emulated";
  const auto inner = open_device(options);
  FaultInjector injector;
  RuntimeRun run(
      std::make_unique<InjectingDevice>(*inner, injector, InjectingDevice::Inner::kProducts),
      {.device = "emulated", .hot_rows = kHotRows, .fac_tokens = 500});
  Runtime& runtime = run.runtime();
  const SequenceId id = runtime.create();
  run.prefill(id, 1, kPageTokens, 50);
  std::vector<std::byte> rows(runtime.traits().page.rows), slices(runtime.traits().page.slices);
  const std::array pages{PageSpans{rows, slices}};
  ASSERT_EQ(runtime.memory().device_slices, 0u);
  int failures = 0;
  for (int64_t nth = 1; nth < 100; ++nth) {
    injector.arm({FaultPoint::kAllocation, FaultPoint::kCopy}, nth);
    try {
      runtime.exchange().export_pages(id, 0, pages);
    } catch (const Error&) {
      ++failures;
      EXPECT_EQ(runtime.memory().device_slices, 0u) << "fault " << nth;
    }
    if (injector.lift() == 0) break;
  }
  EXPECT_GE(failures, 3);
  EXPECT_GT(runtime.memory().device_slices, 0u);
}

// All steps are enqueued before any of them runs: over the ends of the set and of the copies.
TEST(ShortSequences, EveryOrderOfStreamsGivesTheSameBits) {
  const auto run_one = [](RowPlacement rows, const StepPolicy& policy, int first) {
    auto owned = std::make_unique<SteppedDevice>();
    SteppedDevice& device = *owned;
    RuntimeRun run(std::move(owned), {.rows = rows, .hot_rows = kHotRows});
    const SequenceId id = run.runtime().create();
    run.prefill(id, 1, first, 100);
    QueuedSteps queued(run.device(), run.runtime(), run.tape());
    for (int i = 0; i < 12; ++i) {
      const Part part{id, 1, first + i, 1, StepMode::kDecode};
      queued.prepare({&part, 1});
    }
    device.set_policy(policy);
    queued.enqueue();
    return queued.finish();
  };
  for (const int first : {kSet - 6, kPageTokens - 6, kCopied - 6}) {
    const Outputs expected = run_one(RowPlacement::kDevice, fifo(), first);
    for (const StepPolicy& policy :
         {fifo(), lifo(), youngest_stream_first(), starve("write-back"), starve("copy"),
          starve("test compute"), starve("control"), random_order(1), random_order(2)}) {
      expect_same(expected, run_one(RowPlacement::kHost, policy, first), std::to_string(first));
    }
  }
}

// --- the 8B geometry ---

DeviceOptions emulated(std::optional<uint64_t> device_memory = {}) {
  DeviceOptions options;
  options.name = "emulated";
  options.device_memory = device_memory;
  options.host_alias_bytes = uint64_t{64} << 20;
  return options;
}

Config preset(const char* name) {
  Config config;
  config.preset = name;
  config.apply_preset();
  return config;
}

// fasa-m takes at most what full takes, its slices and codes, the addresses of its pages, and the
// scratch of its sets; while a prompt is read, also the buffers that stream its pages.
TEST(ShortSequences, NoLengthTakesMoreThanFull) {
  const Geometry geometry = llama_8b(32);
  const auto dims = first_chunk_dims(geometry, geometry.chunks());
  const auto device = open_device(emulated());
  const Runtime tiered(*device, preset("fasa-m"), geometry, DType::kBF16, dims, 8192);
  const Runtime full(*device, preset("full"), geometry, DType::kBF16, dims, 8192);
  for (int64_t tokens = 1; tokens <= 8192; tokens += tokens < 1200 ? 1 : 61) {
    const KvMemory ours = tiered.estimate_memory(tokens, 1);
    const KvMemory theirs = full.estimate_memory(tokens, 1);
    const uint64_t coded = ours.device_slices + ours.host_tables;
    const uint64_t sets = theirs.device_rows / 256;
    ASSERT_LE(ours.device_rows + ours.device_hot_rows, theirs.device_rows) << tokens;
    ASSERT_LE(ours.device_total(), theirs.device_total() + coded + sets) << tokens;
    const KvMemory reading = tiered.estimate_memory(tokens, 512);
    const uint64_t buffers = reading.device_scratch - ours.device_scratch;
    if (ours.device_hot_rows == 0) {
      ASSERT_EQ(buffers, 0u) << tokens;
    }
    if (tokens <= 320) {  // the set: nothing is scored
      ASSERT_EQ(ours.device_slices, 0u) << tokens;
    }
    ASSERT_LE(buffers, uint64_t{24} << 20) << tokens;
  }
}

// Weights in 4 bits, activations of a step of 512 tokens, and 16 chats.
TEST(ShortSequences, SixteenChatsFitBesideAnEightBillionModel) {
  constexpr int kChats = 16;
  constexpr int64_t kTokens = 2000;
  const ModelShape shape = find_model_shape("Llama-3.1-8B");
  const auto dims = first_chunk_dims(shape.geometry, shape.geometry.chunks());
  const auto chats_that_fit = [&](const char* name) {
    const auto device = open_device(emulated(uint64_t{6} << 30));
    const Buffer weights = device->allocate(
        MemorySpace::kDevice,
        weight_bytes(shape.device_parameters(), 4) + activation_bytes(shape, 512), "weights");
    Runtime runtime(*device, preset(name), shape.geometry, DType::kBF16, dims, 4096);
    int chats = 0;
    try {
      for (; chats < kChats; ++chats) runtime.reserve(runtime.create(), kTokens, 512);
    } catch (const BudgetError&) {
      return chats;
    }
    EXPECT_LE(weights.bytes() + runtime.memory().device_total(), uint64_t{6} << 30);
    return chats;
  };
  EXPECT_EQ(chats_that_fit("fasa-m"), kChats);
  EXPECT_LT(chats_that_fit("full"), kChats);
}

}  // namespace
}  // namespace fasa::testing
