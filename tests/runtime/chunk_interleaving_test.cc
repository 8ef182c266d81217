// Chunks of prompts: every order of the streams that events allow gives the same bits, and the
// events of a layer's rows are necessary.
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <map>

#include "tests/support/runs.h"
#include "tests/support/wait_dropper.h"

namespace fasa::testing {
namespace {

using Outputs = std::vector<std::vector<float>>;

constexpr int kPast = 150;
constexpr int kChunk = 150;
constexpr int kBeside = 90;  // tokens of a sequence that decodes between pieces

// Enqueues pieces and steps without waiting for them.
class Queued {
 public:
  explicit Queued(RuntimeRun& run) : run_(run) {}

  void attend(int layer, const Part& part) {
    const Geometry& g = run_.runtime().geometry();
    const DType dtype = run_.tape().dtype();
    const StreamView stream = run_.tape().stream();
    const Inputs& in = inputs_[index_++];
    run_.runtime().append(
        layer, ConstTensorView::dense(in.k.data(), dtype, part.tokens, g.kv_heads, g.key_dim),
        ConstTensorView::dense(in.v.data(), dtype, part.tokens, g.kv_heads, g.value_dim), stream);
    run_.runtime().attend(
        layer, ConstTensorView::dense(in.q.data(), dtype, part.tokens, g.query_heads, g.key_dim),
        TensorView::dense(in.out.data(), DType::kF32, part.tokens, g.query_heads, g.value_dim),
        nullptr, stream);
    std::vector<float>& result = results_.emplace_back(in.out.bytes() / sizeof(float));
    run_.device().copy(result.data(), in.out.data(), in.out.bytes(), CopyKind::kDeviceToHost,
                       stream);
  }
  // Uploads what attend() takes, in the same order.
  void prepare(int layer, const Part& part) {
    const Geometry& g = run_.runtime().geometry();
    const auto bytes =
        static_cast<size_t>(part.tokens * g.query_heads * g.value_dim) * sizeof(float);
    inputs_.push_back({.k = run_.tape().keys({&part, 1}, layer),
                       .v = run_.tape().values({&part, 1}, layer),
                       .q = run_.tape().queries({&part, 1}, layer),
                       .out = run_.device().allocate(MemorySpace::kDevice, bytes, "test output")});
  }
  Outputs finish() {
    run_.device().synchronize(run_.tape().stream());
    return {results_.begin(), results_.end()};
  }

 private:
  struct Inputs {
    Buffer k, v, q, out;
  };
  RuntimeRun& run_;
  std::vector<Inputs> inputs_;
  std::deque<std::vector<float>> results_;  // where they are while copies are under way
  size_t index_ = 0;
};

// `work` gets the pieces of the chunk and the steps between them, in order.
template <typename Piece, typename Step>
void schedule(SequenceId a, SequenceId b, int layers, int tokens, const Piece& piece,
              const Step& step) {
  int64_t beside = kBeside;
  for (int layer = 0; layer < layers; ++layer) {
    for (int done = 0; done < kChunk; done += tokens) {
      piece(layer, Part{a, 1, kPast + done, std::min(tokens, kChunk - done), StepMode::kPrefill});
      if (layer != 1 && tokens < kChunk) step(Part{b, 2, beside++, 1, StepMode::kDecode});
    }
  }
}

// A chunk in pieces of `tokens` tokens, then a decode step of its sequence.
Outputs run_chunk(RuntimeRun& run, int tokens, const std::function<void()>& filled = {}) {
  Runtime& runtime = run.runtime();
  const int layers = runtime.geometry().layers;
  const SequenceId a = runtime.create();
  const SequenceId b = runtime.create();
  run.prefill(a, 1, kPast, 67);
  run.prefill(b, 2, kBeside - 2, 64);
  run.decode(b, 2, 2);
  const Part last{a, 1, kPast + kChunk, 1, StepMode::kDecode};
  Queued queued(run);
  const auto prepare_step = [&](const Part& part) {
    for (int layer = 0; layer < layers; ++layer) queued.prepare(layer, part);
  };
  schedule(
      a, b, layers, tokens, [&](int layer, const Part& part) { queued.prepare(layer, part); },
      prepare_step);
  prepare_step(last);
  const auto step = [&](const Part& part) {
    run.tape().begin({&part, 1});
    for (int layer = 0; layer < layers; ++layer) queued.attend(layer, part);
    runtime.end_step();
  };
  if (filled) filled();
  runtime.prompts().open_chunk(a, kChunk);
  schedule(
      a, b, layers, tokens,
      [&](int layer, const Part& part) {
        runtime.prompts().begin_piece(a, layer, part.tokens);
        queued.attend(layer, part);
        runtime.prompts().end_piece();
      },
      step);
  runtime.prompts().close_chunk(a);
  step(last);
  return queued.finish();
}

const std::pair<const char*, StepPolicy> kOrders[] = {
    {"as enqueued", fifo()},
    {"last enqueued first", lifo()},
    {"youngest stream first", youngest_stream_first()},
    {"oldest stream first", oldest_stream_first()},
    {"copies starved", starve("copy")},
    {"copy 0 starved", starve("copy 0")},
    {"copy 1 starved", starve("copy 1")},
    {"write-back starved", starve("write-back")},
    {"write-back starved, lanes in reverse", starve("write-back", youngest_stream_first())},
    {"compute starved", starve("test compute")},
    {"control starved", starve("control")}};

bool same(const Outputs& a, const Outputs& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), same_bits);
}

Outputs expected_of(const RunSetup& setup, int tokens) {
  RuntimeRun run(setup);
  return run_chunk(run, tokens);
}

TEST(ChunkInterleaving, EveryOrderGivesTheSameBits) {
  for (const RunSetup& setup : {RunSetup{.hot_rows = 40}, RunSetup{.hot_rows = 40, .streams = 1},
                                RunSetup{.rows = RowPlacement::kAuto, .hot_rows = 40}}) {
    const Outputs expected = expected_of(setup, 64);
    for (const auto& [name, policy] : kOrders) {
      RuntimeRun run(std::make_unique<SteppedDevice>(policy), setup);
      EXPECT_TRUE(same(expected, run_chunk(run, 64))) << name;
    }
    for (uint64_t seed = 0; seed < 10; ++seed) {
      RuntimeRun run(std::make_unique<SteppedDevice>(random_order(seed)), setup);
      EXPECT_TRUE(same(expected, run_chunk(run, 64))) << "random " << seed;
    }
  }
}

TEST(ChunkInterleaving, ADroppedWaitIsNoticed) {
  const RunSetup setup{.hot_rows = 40};
  std::map<std::string, int> noticed;
  for (const int tokens : {64, kChunk}) {  // a layer's only piece waits for the layer before
    const Outputs expected = expected_of(setup, tokens);
    std::vector<std::string> waits;
    const auto run = [&](size_t nth, const StepPolicy& policy) {
      auto owned = std::make_unique<WaitDropper>(std::make_unique<SteppedDevice>());
      WaitDropper& device = *owned;
      RuntimeRun one(std::move(owned), setup);
      Outputs outputs = run_chunk(one, tokens, [&] {
        device.drop(nth);
        device.stepped().set_policy(policy);
      });
      waits = device.waits();
      return outputs;
    };
    EXPECT_TRUE(same(expected, run(0, fifo())));
    const std::vector<std::string> all = waits;
    for (size_t nth = 1; nth <= all.size(); ++nth) {
      const std::string& name = all[nth - 1];
      if (noticed[name] > 0 || !(name.starts_with("copy") || name.starts_with("test"))) continue;
      noticed[name] += std::any_of(std::begin(kOrders), std::end(kOrders), [&](const auto& order) {
        return !same(expected, run(nth, order.second));
      });
    }
  }
  // A layer's rows are loaded before they are read, and not before the layer before is done with
  // the buffer: attention has read it, and new rows are on the host.
  for (const char* name :
       {"test compute for copy host to device of copy 0",
        "copy 0 for copy device to host of test compute", "copy 1 for write_back of write-back"}) {
    EXPECT_GT(noticed[name], 0) << name;
  }
  for (const auto& [name, count] : noticed) std::cout << name << ": " << count << '\n';
}

}  // namespace
}  // namespace fasa::testing
