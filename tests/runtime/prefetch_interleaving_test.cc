// Prefetching under every order of the streams that events allow: the same bits as without
// prefetching; without a wait for predicted or gathered rows, some order gives other bits.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/queued_steps.h"
#include "tests/support/runs.h"
#include "tests/support/wait_dropper.h"

namespace fasa::testing {
namespace {

using Outputs = std::vector<std::vector<float>>;
using NamedPolicy = std::pair<std::string, StepPolicy>;

constexpr int kPrefilled = 190;  // decode crosses into a new page after two steps
constexpr int kSynchronized = 2;
constexpr int kQueued = 3;

Geometry deep_geometry() {
  Geometry geometry = small_geometry();
  geometry.layers = 5;  // more than the greatest depth
  return geometry;
}

std::vector<NamedPolicy> forced_orders() {
  return {{"as enqueued", fifo()},
          {"last enqueued first", lifo()},
          {"youngest stream first", youngest_stream_first()},
          {"oldest stream first", oldest_stream_first()},
          {"predictions starved", starve("prefetch")},
          {"copies starved", starve("copy")},
          {"write-back starved", starve("write-back")},
          {"compute starved", starve("test compute")},
          {"predictions starved, the others last enqueued first", starve("prefetch", lifo())}};
}

struct Result {
  Outputs outputs;
  std::vector<std::string> waits;
  StepCounters rows;
};

// A run whose last steps are all enqueued before any of them runs, without wait number `dropped`; 0
// drops none.
Result run_queued(const RunSetup& setup, const StepPolicy& policy, size_t dropped = 0) {
  auto owned = std::make_unique<WaitDropper>(std::make_unique<SteppedDevice>());
  WaitDropper& device = *owned;
  RuntimeRun run(std::move(owned), setup, deep_geometry());
  const SequenceId id = run.runtime().create();
  run.prefill(id, 1, kPrefilled, kPrefilled);
  run.decode(id, 1, kSynchronized);
  QueuedSteps queued(run.device(), run.runtime(), run.tape());
  for (int i = 0; i < kQueued; ++i) {
    const Part part{id, 1, kPrefilled + kSynchronized + i, 1, StepMode::kDecode};
    queued.prepare({&part, 1});
  }
  device.drop(dropped);
  device.stepped().set_policy(policy);
  queued.enqueue();
  Result result{.outputs = queued.finish(), .waits = device.waits(), .rows = {}};
  device.drop(0);
  result.rows = run.runtime().metrics().rows;
  return result;
}

Outputs run_without_predictions(int shared_layers = 0) {
  return run_queued({.shared_layers = shared_layers, .depth = 0}, fifo()).outputs;
}

bool same(const Outputs& a, const Outputs& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), same_bits);
}

class PrefetchInterleaving : public ::testing::TestWithParam<int> {};  // depth

TEST_P(PrefetchInterleaving, EveryOrderGivesTheSameBits) {
  const Outputs expected = run_without_predictions();
  uint64_t seed = static_cast<uint64_t>(GetParam()) << 32u;
  for (const PredictionSource prediction_source :
       {PredictionSource::kGoodQueries, PredictionSource::kRandom}) {
    for (const int streams : {1, 2, 4}) {
      // Fewer hot rows than a set with its over-fetch, about as many, and more.
      for (const int hot_rows : {51, 64, 100}) {
        const RunSetup setup{.hot_rows = hot_rows,
                             .streams = streams,
                             .head_groups = streams == 1 ? 1 : 2,
                             .depth = GetParam(),
                             .prediction_source = prediction_source};
        std::vector<NamedPolicy> orders = forced_orders();
        for (int i = 0; i < 2; ++i) {
          orders.emplace_back("random " + std::to_string(seed), random_order(seed));
          ++seed;
        }
        for (const auto& [name, policy] : orders) {
          const Result result = run_queued(setup, policy);
          EXPECT_TRUE(same(expected, result.outputs))
              << name << ", streams " << streams << ", hot rows " << hot_rows;
          EXPECT_GT(result.rows.prefetched, 0u) << name;
        }
      }
    }
  }
}

// Predictions for layers that share another's rows, made before and after that layer's append.
TEST_P(PrefetchInterleaving, EveryOrderGivesTheSameBitsWithSharedRows) {
  const Outputs expected = run_without_predictions(3);
  for (const PredictionSource prediction_source :
       {PredictionSource::kGoodQueries, PredictionSource::kRandom}) {
    const RunSetup setup{.hot_rows = 64,
                         .head_groups = 2,
                         .shared_layers = 3,
                         .depth = GetParam(),
                         .prediction_source = prediction_source};
    std::vector<NamedPolicy> orders = forced_orders();
    for (uint64_t seed = 0; seed < 4; ++seed) orders.emplace_back("random", random_order(seed));
    for (const auto& [name, policy] : orders) {
      const Result result = run_queued(setup, policy);
      EXPECT_TRUE(same(expected, result.outputs)) << name;
      EXPECT_GT(result.rows.prefetched, 0u) << name;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Depths, PrefetchInterleaving, ::testing::Values(1, 2, 4));

// The waits of the compute stream before it attends to rows that came over the link.
TEST(PrefetchInterleavingWaits, ADroppedWaitForRowsIsNoticed) {
  const Outputs expected = run_without_predictions();
  for (const PredictionSource prediction_source :
       {PredictionSource::kGoodQueries, PredictionSource::kRandom}) {
    const RunSetup setup{
        .hot_rows = 60, .head_groups = 2, .depth = 2, .prediction_source = prediction_source};
    const Result complete = run_queued(setup, fifo());
    ASSERT_TRUE(same(expected, complete.outputs));
    std::map<std::string, int> dropped;
    for (size_t nth = 1; nth <= complete.waits.size(); ++nth) {
      const std::string& name = complete.waits[nth - 1];
      if (!name.starts_with("test compute for gather of ") &&
          !name.starts_with("test compute for fetch of ")) {
        continue;
      }
      ++dropped[name];
      std::vector<NamedPolicy> orders = forced_orders();
      const std::string stream = name.substr(name.rfind(" of ") + 4);
      orders.insert(orders.begin(), {"the stream starved", starve(stream)});
      for (uint64_t seed = 0; seed < 12; ++seed) orders.emplace_back("random", random_order(seed));
      const bool noticed = std::any_of(orders.begin(), orders.end(), [&](const auto& order) {
        return !same(expected, run_queued(setup, order.second, nth).outputs);
      });
      EXPECT_TRUE(noticed) << "wait " << nth << ": " << name;
    }
    for (const char* rows :
         {"gather of prefetch 0", "gather of prefetch 1", "fetch of copy 0", "fetch of copy 1"}) {
      EXPECT_GT(dropped[std::string("test compute for ") + rows], 1) << rows;
    }
  }
}

}  // namespace
}  // namespace fasa::testing
