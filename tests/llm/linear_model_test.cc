// Models with layers of linear attention: the state of a sequence through chunks, forks, cuts and
// aborted steps.
#include <gtest/gtest.h>

#include <memory>
#include <numeric>
#include <string_view>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/base/units.h"
#include "tests/llm/llm_fixture.h"
#include "tests/support/fake_cuda.h"

namespace fasa {
namespace {

using namespace llm_test;

// Every test of this folder runs on the CUDA device, where the layers' kernels are interpreted. One
// family, because interpreting experts takes long.
constexpr std::string_view kOnCuda = "qwen3-5-on-cuda";

class LinearModel : public ::testing::TestWithParam<const char*> {
 protected:
  void start(const std::string& device = "cpu") {
    runtime_.reset();
    model_.reset();
    device_ = GetParam() == kOnCuda ? open_fake(fake_) : open_test_device(device);
    model_ = std::make_unique<Model>(Model::load(folder(), *device_, DType::kF32));
    runtime_ = full_runtime(*model_);
  }
  // That a test runs on, each; on CUDA one.
  static std::vector<const char*> devices() {
    if (GetParam() == kOnCuda) return {"cuda"};
    return {"cpu", "emulated"};
  }
  // The logits of all of the step's tokens, the next ones of the golden prompt.
  std::vector<float> step(SequenceId id, int tokens, StepMode mode) {
    const auto first = static_cast<size_t>(runtime_->length(id));
    const StepSequence parts[] = {{id, tokens, mode}};
    const auto logits = model_->step(
        *runtime_, std::span(golden_.tokens).subspan(first, static_cast<size_t>(tokens)), parts,
        {.all_logits = true});
    return {logits.begin(), logits.end()};
  }
  std::vector<float> prefill(SequenceId id, int tokens) {
    return step(id, tokens, StepMode::kPrefill);
  }
  std::vector<float> decode(SequenceId id, int tokens) {
    std::vector<float> all;
    for (int i = 0; i < tokens; ++i) {
      const std::vector<float> one = step(id, 1, StepMode::kDecode);
      all.insert(all.end(), one.begin(), one.end());
    }
    return all;
  }

  // Decodes tokens in steps that keep 1 to 4 and drop 2 wrong ones.
  std::vector<float> draft(SequenceId id, int tokens) {
    std::vector<float> all;
    for (int done = 0, wanted = 1; done < tokens; wanted = wanted % 4 + 1) {
      const int most = runtime_->info(id).max_drafted;
      const int kept = std::min({wanted, most, tokens - done}), count = std::min(kept + 2, most);
      const auto* const first = golden_.tokens.data() + runtime_->length(id);
      std::vector<int32_t> ids(first, first + kept);
      ids.resize(static_cast<size_t>(count), 7);
      const StepSequence parts[] = {{id, count, StepMode::kDecode}};
      model_->step_with_drafts(*runtime_, ids, parts, [&](std::span<const float> logits) {
        all.insert(all.end(), logits.begin(), logits.begin() + kept * std::ssize(logits) / count);
        return std::vector<int>{kept};
      });
      done += kept;
    }
    return all;
  }

  static std::string folder() { return golden_dir(GetParam() == kOnCuda ? "qwen3-5" : GetParam()); }

  FakeCuda fake_;
  const Golden golden_ = Golden::load(folder());
  std::unique_ptr<Device> device_;
  std::unique_ptr<Model> model_;
  std::unique_ptr<Runtime> runtime_;
};

TEST_P(LinearModel, SameBitsWhateverTheChunks) {
  start();
  const std::vector<float> whole = prefill(runtime_->create(), 90);
  for (const std::vector<int>& chunks :
       {std::vector<int>{64, 26}, {1, 62, 1, 26}, {37, 30, 23}, {65, 25}}) {
    const SequenceId id = runtime_->create();
    std::vector<float> parts;
    for (const int chunk : chunks) {
      const std::vector<float> part = prefill(id, chunk);
      parts.insert(parts.end(), part.begin(), part.end());
    }
    EXPECT_EQ(parts, whole);
  }
}

TEST_P(LinearModel, SequencesOfAStepAreIndependent) {
  start();
  const SequenceId lone = runtime_->create();
  prefill(lone, 70);
  const std::vector<float> expected = decode(lone, 1);
  const SequenceId one = runtime_->create(), other = runtime_->create();
  prefill(one, 70);
  prefill(other, 5);
  std::vector<int32_t> ids = {golden_.tokens[5], golden_.tokens[6], golden_.tokens[70]};
  const StepSequence parts[] = {{other, 2, StepMode::kPrefill}, {one, 1, StepMode::kDecode}};
  const auto logits = model_->step(*runtime_, ids, parts);
  const auto vocab = static_cast<size_t>(model_->config().vocab_size);
  EXPECT_EQ(std::vector<float>(logits.begin() + static_cast<ptrdiff_t>(vocab), logits.end()),
            expected);
}

TEST_P(LinearModel, GoesBackToTheEndsOfTurns) {
  for (const char* const device : devices()) {
    start(device);
    const SequenceId id = runtime_->create();
    prefill(id, 20);
    const std::vector<float> answer = decode(id, 5);
    const std::vector<float> question = prefill(id, 45);
    EXPECT_EQ(runtime_->resume_point(id, 70), 70);
    EXPECT_EQ(runtime_->resume_point(id, 69), 25);
    EXPECT_EQ(runtime_->resume_point(id, 24), 20);
    EXPECT_EQ(runtime_->resume_point(id, 19), 0);
    EXPECT_EQ(runtime_->resume_point(id, 25), 25);
    EXPECT_NE(runtime_->resume_point(id, 30), 30);
    EXPECT_THROW(runtime_->truncate(id, 30), UsageError);
    EXPECT_THROW(runtime_->fork(id, 30), UsageError);
    EXPECT_EQ(runtime_->length(id), 70);

    const SequenceId child = runtime_->fork(id, 20);
    EXPECT_EQ(decode(child, 5), answer);
    const SequenceId twin = runtime_->fork(id, 70);
    EXPECT_EQ(decode(twin, 3), decode(id, 3));
    runtime_->truncate(id, 25);
    std::vector<float> again = prefill(id, 1);
    const std::vector<float> rest = prefill(id, 44);
    again.insert(again.end(), rest.begin(), rest.end());
    EXPECT_EQ(again, question);
    runtime_->truncate(id, 0);
    const SequenceId fresh = runtime_->create();
    EXPECT_EQ(prefill(id, 31), prefill(fresh, 31));
  }
}

// A graph's kernels read each step's states and positions anew: two sequences by turns, one of them
// with an open block.
TEST_P(LinearModel, GraphsHaveTheBitsOfEnqueuedSteps) {
  const auto decoded = [&](bool graphs) {
    start();
    const SequenceId ids[] = {runtime_->create(), runtime_->create()};
    for (const SequenceId id : ids) runtime_->reserve(id, 90, 70);
    prefill(ids[0], 64);
    prefill(ids[1], 9);
    std::vector<float> all;
    for (int i = 0; i < 16; ++i) {
      const SequenceId id = ids[i % 2];
      const auto at = static_cast<size_t>(runtime_->length(id));
      const StepSequence parts[] = {{id, 1, StepMode::kDecode}};
      const auto logits =
          model_->step(*runtime_, {&golden_.tokens[at], 1}, parts, {.graphs = graphs});
      all.insert(all.end(), logits.begin(), logits.end());
    }
    EXPECT_EQ(runtime_->graph_metrics().launched > 4, graphs && GetParam() == kOnCuda);
    return all;
  };
  EXPECT_EQ(decoded(true), decoded(false));
}

TEST_P(LinearModel, KeepsTheLastTwoTurns) {
  start();
  const SequenceId id = runtime_->create();
  for (int turn = 0; turn < 3; ++turn) {
    prefill(id, 10);
    decode(id, 2);
  }
  prefill(id, 1);
  EXPECT_EQ(runtime_->resume_point(id, 35), 34);
  EXPECT_EQ(runtime_->resume_point(id, 33), 0);
}

TEST_P(LinearModel, TakesNoSnapshotsWithoutARollbackWindow) {
  start();
  const SequenceId id = runtime_->create();
  runtime_->set_rollback_tokens(id, 0);
  prefill(id, 20);
  decode(id, 2);
  EXPECT_EQ(runtime_->resume_point(id, 21), 0);
  EXPECT_EQ(runtime_->memory().host_states, 0u);
}

TEST_P(LinearModel, MemoryCountsStatesAndSnapshots) {
  start("emulated");
  const LinearLayout layout(model_->config().linear);
  const SequenceId id = runtime_->create();
  EXPECT_EQ(runtime_->memory().device_states, 0u);
  runtime_->reserve(id, 90, 90);
  const auto bytes = static_cast<uint64_t>(layout.bytes());
  EXPECT_EQ(runtime_->memory().device_states, bytes);
  EXPECT_EQ(runtime_->estimate_memory(90, 90).device_states, bytes);
  prefill(id, 64);
  decode(id, 1);
  EXPECT_EQ(runtime_->memory().host_states,
            static_cast<uint64_t>(layout.shape().layers * layout.cut_bytes()));
  runtime_->free(id);
  EXPECT_EQ(runtime_->memory().device_states, 0u);
  EXPECT_EQ(runtime_->memory().host_states, 0u);
}

TEST_P(LinearModel, AnAbortedStepLeavesTheLastSnapshot) {
  start();
  const SequenceId id = runtime_->create();
  prefill(id, 20);
  const std::vector<float> answer = decode(id, 2);
  const StepSequence parts[] = {{id, 1, StepMode::kDecode}};
  runtime_->begin_step(parts);
  runtime_->abort_step();  // before the model computed anything
  EXPECT_EQ(runtime_->resume_point(id, 22), 22);
  runtime_->begin_step(parts);
  static_cast<void>(model_->forward(*runtime_, {&golden_.tokens[22], 1}, parts));
  runtime_->abort_step();
  EXPECT_EQ(runtime_->resume_point(id, 22), 20);
  EXPECT_THROW(runtime_->begin_step(parts), UsageError);
  runtime_->truncate(id, 20);
  EXPECT_EQ(decode(id, 2), answer);
}

// Copies the first `point.tokens` tokens of a sequence, without its state.
SequenceId copy_pages(Runtime& runtime, SequenceId from, const StatePoint& point) {
  const PageBytes bytes = runtime.traits().page;
  const SequenceId to = runtime.create();
  for (int64_t page = 0; page < pages_of(point.tokens); ++page) {
    const int64_t tokens = std::min<int64_t>(kPageTokens, point.tokens - page * kPageTokens);
    const bool full = (page + 1) * kPageTokens <= runtime.length(from);
    std::vector<std::byte> rows(bytes.rows), slices(full ? bytes.slices : 0);
    const PageSpans out{rows, slices};
    runtime.exchange().export_pages(from, page, {&out, 1});
    const ConstPageSpans in{
        rows, std::span(slices).first(tokens == kPageTokens ? slices.size() : size_t{0})};
    runtime.exchange().import_pages(to, tokens, {&in, 1});
  }
  return to;
}

std::vector<std::byte> exported_state(Runtime& runtime, SequenceId from, const StatePoint& point) {
  std::vector<std::byte> state(point.bytes);
  const size_t half = state.size() / 2 + 3;
  runtime.exchange().export_state(from, point, half, std::span(state).subspan(half));
  runtime.exchange().export_state(from, point, 0, std::span(state).first(half));
  return state;
}

TEST_P(LinearModel, ASequenceMovesByPagesAndAState) {
  for (const char* const device : devices()) {
    start(device);
    const SequenceId id = runtime_->create();
    prefill(id, 70);
    decode(id, 2);
    prefill(id, 10);
    const std::vector<StatePoint> points = runtime_->exchange().states(id);
    ASSERT_EQ(points.size(), 3u);  // two ends of turns, and the end
    EXPECT_EQ(points[0].tokens, 70);
    EXPECT_EQ(points[1].tokens, 72);
    EXPECT_EQ(points[2].tokens, 82);
    EXPECT_EQ(points[2].open, 10);
    for (const StatePoint& point : points) {
      const std::vector<std::byte> state = exported_state(*runtime_, id, point);
      const SequenceId copy = copy_pages(*runtime_, id, point);
      const StepSequence parts[] = {{copy, 1, StepMode::kDecode}};
      EXPECT_THROW(runtime_->begin_step(parts), UsageError);  // no state yet
      EXPECT_EQ(runtime_->resume_point(copy, point.tokens), 0);
      for (size_t at = 0; at < state.size(); at += 1000) {
        const size_t more = std::min<size_t>(1000, state.size() - at);
        runtime_->exchange().import_state(copy, point, at, std::span(state).subspan(at, more));
      }
      EXPECT_EQ(runtime_->resume_point(copy, point.tokens), point.tokens);
      EXPECT_EQ(exported_state(*runtime_, copy, point), state);
      const SequenceId fork = runtime_->fork(id, point.tokens);
      EXPECT_EQ(decode(copy, 2), decode(fork, 2));
      EXPECT_EQ(prefill(copy, 4), prefill(fork, 4));
    }
  }
}

// The drafts that stayed wait in the sequence's state, whatever comes next.
TEST_P(LinearModel, DraftsAreInForksSnapshotsAndMovedStates) {
  start();
  const SequenceId plain = runtime_->create(), id = runtime_->create();
  prefill(plain, 20);
  prefill(id, 20);
  EXPECT_EQ(draft(id, 15), decode(plain, 15));
  const SequenceId plain_fork = runtime_->fork(plain, 35), fork = runtime_->fork(id, 35);
  const StatePoint end = runtime_->exchange().states(id).back();
  EXPECT_GT(end.open, 0);
  const SequenceId copy = copy_pages(*runtime_, id, end);
  const std::vector<std::byte> state = exported_state(*runtime_, id, end);
  StatePoint bad = end;
  bad.open = kMaxWaiting + 1;
  EXPECT_THROW(runtime_->exchange().import_state(copy, bad, 0, state), UsageError);
  runtime_->exchange().import_state(copy, end, 0, state);
  const std::vector<float> question = prefill(plain, 40);
  EXPECT_EQ(prefill(id, 40), question);
  EXPECT_EQ(prefill(copy, 40), question);
  EXPECT_EQ(draft(id, 9), decode(plain, 9));
  runtime_->truncate(id, 35);  // a snapshot with waiting tokens
  EXPECT_EQ(prefill(id, 40), question);
  const std::vector<float> more = decode(plain_fork, 12);
  EXPECT_EQ(draft(fork, 12), more);
  runtime_->truncate(copy, 35);
  EXPECT_EQ(decode(copy, 12), more);
}

TEST_P(LinearModel, AStateIsRefusedWhereItDoesNotFit) {
  start();
  const SequenceId id = runtime_->create();
  prefill(id, 20);
  decode(id, 3);
  const StatePoint end = runtime_->exchange().states(id).back();
  const std::vector<std::byte> state = exported_state(*runtime_, id, end);
  const SequenceId copy = copy_pages(*runtime_, id, end);
  const auto refuses = [&](const StatePoint& point, size_t offset, size_t bytes) {
    EXPECT_THROW(runtime_->exchange().import_state(copy, point, offset,
                                                   std::span(state).subspan(offset, bytes)),
                 UsageError);
  };
  StatePoint bad = end;
  bad.bytes += 64;
  refuses(bad, 0, 64);  // another model's size
  bad = end;
  bad.tokens = 22;
  refuses(bad, 0, 64);  // other pages
  bad = end;
  bad.open = 64;
  refuses(bad, 0, 64);
  refuses(end, 64, 64);  // not the first bytes
  refuses(end, 0, 0);
  runtime_->exchange().import_state(copy, end, 0, std::span(state).first(64));
  refuses(end, 0, 64);  // not the next ones
  runtime_->truncate(copy, 0);
  EXPECT_EQ(prefill(copy, 5).size(), 5 * static_cast<size_t>(model_->config().vocab_size));
  EXPECT_THROW(runtime_->exchange().import_state(copy, end, 0, state),
               UsageError);  // it has a state
  EXPECT_THROW(runtime_->exchange().export_state(id, bad, 0, {}), UsageError);
}

TEST_P(LinearModel, MemoryCountsASharedSnapshotOnce) {
  start();
  const SequenceId id = runtime_->create();
  prefill(id, 64);
  decode(id, 1);
  const uint64_t one = runtime_->memory().host_states;
  const SequenceId child = runtime_->fork(id, 64);
  EXPECT_EQ(runtime_->memory().host_states, one);
  runtime_->free(id);
  EXPECT_EQ(runtime_->memory().host_states, one);
  runtime_->free(child);
  EXPECT_EQ(runtime_->memory().host_states, 0u);
}

TEST_P(LinearModel, SnapshotsFollowTheConfig) {
  start();
  Config config;
  config.preset = "full";
  config.apply_preset();
  config.memory.snapshots = {.interval = 64, .turns = 0};
  const Geometry geometry = model_->config().geometry();
  runtime_ = std::make_unique<Runtime>(*device_, config, geometry, model_->dtype(),
                                       all_slice_dims(geometry));
  const SequenceId id = runtime_->create();
  prefill(id, 70);
  decode(id, 3);
  prefill(id, 3);
  EXPECT_EQ(runtime_->resume_point(id, 75), 64);
  EXPECT_EQ(runtime_->resume_point(id, 63), 0);
}

TEST_P(LinearModel, ARuntimeOfAnotherModelIsRefused) {
  start();
  Geometry geometry = model_->config().geometry();
  geometry.linear = {};
  Config config;
  Runtime other(*device_, config, geometry, model_->dtype(), all_slice_dims(geometry));
  const StepSequence parts[] = {{other.create(), 1, StepMode::kPrefill}};
  EXPECT_THROW(model_->step(other, {&golden_.tokens[0], 1}, parts), UsageError);
}

INSTANTIATE_TEST_SUITE_P(Families, LinearModel,
                         ::testing::Values("qwen3-5", "qwen3-5-moe", "qwen3-next", kOnCuda.data()),
                         by_folder);

}  // namespace
}  // namespace fasa
