// Simulation runs of the server's engine, each drawn from a seed: requests arrive, are cancelled
// and run short of memory between its steps. Each gets, bit for bit, what it gets alone; only the
// youngest steps back, and the oldest always progresses. A quarter of the seeds have a model with
// linear attention.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <memory>
#include <tuple>
#include <vector>

#include "tests/serve/stepped_engine.h"
#include "tests/simulation/draw.h"

namespace fasa::serve {
namespace {

using testing::Draw;

struct DrawnRequest {
  size_t begin = 0, length = 0;  // of the text
  int64_t max_tokens = 0;
  int choices = 1;

  auto key() const { return std::tuple(begin, length, max_tokens, choices); }
};

DrawnRequest drawn_request(Draw& draw) {
  const bool is_short = draw.one_in(2);
  return {.begin = static_cast<size_t>(100 * draw.below(4)),
          .length = static_cast<size_t>(is_short ? draw.between(1, 60) : draw.between(200, 900)),
          .max_tokens = draw.between(1, 12),
          .choices = draw.one_in(6) ? 2 : 1};
}

struct RunModel {
  ServedModel served;
  int32_t vocab = 256;
  uint64_t scarce_memory = uint64_t{15} << 20;  // a device with the least memory that runs have

  std::vector<int32_t> ids_of(const DrawnRequest& request) const {
    std::vector<int32_t> ids = bytes_of(some_text(request.begin, request.length));
    for (int32_t& id : ids) id %= vocab;
    return ids;
  }
};

RunModel linear_model() {
  RunModel model{.served = {.dir = llm_test::golden_dir("qwen3-5")},
                 .vocab = 61,
                 .scarce_memory = uint64_t{3} << 19};
  model.served.config.memory.snapshots.interval = 64;
  return model;
}

EngineOptions drawn_options(Draw& draw) {
  // A step of the least chunk or of the largest: sizes must not depend on the clock.
  return {.max_sequences = static_cast<int>(draw.between(2, 6)),
          .prefill_chunk = static_cast<int>(draw.of({16, 50, 128, 512})),
          .max_step_seconds = draw.of({1e-9, 1e9}),
          .idle_step_seconds = draw.of({1e-9, 1e9}),
          .prompt_share = draw.of({0.0, 0.2, 0.5, 1.0})};
}

// What each request gets alone; salts keep it from using another's pages.
class AloneAnswers {
 public:
  explicit AloneAnswers(const RunModel& model)
      : model_(model), server_(LocalServer::open("cpu", {}), {}, model.served) {}

  const std::vector<Recorder::Choice>& of(const DrawnRequest& request) {
    auto& answer = answers_[request.key()];
    if (!answer) {
      answer = server_.start(model_.ids_of(request), request.max_tokens,
                             std::to_string(answers_.size()), request.choices);
      answer->wait();
      server_.loop().evict_idle();
    }
    return answer->choices();
  }

 private:
  const RunModel model_;
  LocalServer server_;
  std::map<decltype(DrawnRequest{}.key()), std::shared_ptr<Recorder>> answers_;
};

// The tokens of each active choice, oldest first.
using Held = std::vector<std::pair<const ActiveChoice*, int64_t>>;
Held held_by(const SteppedEngine& engine) {
  Held held;
  for (const auto& one : engine.choices().active()) held.emplace_back(one.get(), one->log.size());
  return held;
}

// Choices that lost their pages are the youngest of those that were active.
void check_step_backs(const Held& before, const SteppedEngine& engine) {
  bool lost = false;
  for (const auto& held : before) {
    const ActiveChoice* const choice = held.first;
    const auto& waiting = engine.choices().waiting();
    const bool waits = std::any_of(waiting.begin(), waiting.end(),
                                   [&](const auto& one) { return one.get() == choice; });
    const auto& active = engine.choices().active();
    const auto still = std::find_if(active.begin(), active.end(),
                                    [&](const auto& one) { return one.get() == choice; });
    if (waits) lost = true;
    if (still == active.end()) continue;
    EXPECT_FALSE(lost) << "an older choice lost its pages";
    EXPECT_GE((*still)->log.size(), held.second) << "a partly read prompt lost pages";
  }
}

class ServeRuns : public ::testing::TestWithParam<const char*> {
 protected:
  void run(uint64_t seed);
  static int seeds() { return std::getenv("FASA_LONG") != nullptr ? 300 : 8; }

  AloneAnswers alone_{RunModel{}};
  AloneAnswers alone_linear_{linear_model()};
  uint64_t preemptions_ = 0, linear_preemptions_ = 0;
};

void ServeRuns::run(uint64_t seed) {
  Draw draw(seed);
  EngineOptions options = drawn_options(draw);
  const bool is_linear = Draw(seed, UINT64_MAX).one_in(4);
  const RunModel model = is_linear ? linear_model() : RunModel{};
  std::optional<uint64_t> memory;
  if (std::string(GetParam()) == "emulated" && !draw.one_in(3)) {
    memory = model.scarce_memory + model.scarce_memory / 15 * static_cast<uint64_t>(draw.below(4));
    options.prefill_chunk = std::min(options.prefill_chunk, 128);  // activations have to fit
  }
  SteppedEngine engine(LocalServer::open(GetParam(), memory), model.served, options);
  struct Sent {
    DrawnRequest request;
    std::shared_ptr<Recorder> recorder;
    bool cancelled = false;
  };
  std::vector<Sent> sent;
  const ActiveChoice* oldest = nullptr;
  double oldest_tokens = 0;
  int steps_without = 0;
  for (int step = 0; step < 80 || !engine.idle(); ++step) {
    ASSERT_LT(step, 20'000) << "the requests do not end";
    if (step < 80 && draw.one_in(4)) {
      const DrawnRequest request = drawn_request(draw);
      sent.push_back({request, std::make_shared<Recorder>(request.choices)});
      // Only equal requests share: what one answered would be computed by decoding for another.
      engine.submit({.salt = std::to_string(request.begin * 10'000 + request.length),
                     .prompt = model.ids_of(request),
                     .choices = request.choices,
                     .answer = {.max_tokens = request.max_tokens, .logprobs = 0},
                     .observer = sent.back().recorder},
                    sent.size() - 1);
    }
    if (!sent.empty() && draw.one_in(40)) {
      const auto id = static_cast<size_t>(draw.below(std::ssize(sent)));
      sent[id].cancelled = true;
      engine.cancel(id);
    }
    if (draw.one_in(30)) engine.evict();
    const Held before = held_by(engine);
    engine.step();
    check_step_backs(before, engine);
    const auto& active = engine.choices().active();
    const ActiveChoice* const first = active.empty() ? nullptr : active.front().get();
    const double tokens = first == nullptr ? 0 : engine.computed(*first);
    steps_without = first == oldest && tokens == oldest_tokens ? steps_without + 1 : 0;
    oldest = first, oldest_tokens = tokens;
    // Others' steps count as 16 tokens at least, until a chunk of 512 is owed at a share of 0.2.
    // Then it may wait for the end of a chunk, in pieces of 4 tokens.
    if (first != nullptr && options.prompt_share > 0) {
      ASSERT_LE(steps_without, 4 * 512 / 16 + 1 + 900 / 4 * engine.layers());
    }
  }
  (is_linear ? linear_preemptions_ : preemptions_) += engine.stats().preemptions;
  for (const Sent& one : sent) {
    if (one.cancelled) continue;
    if (one.recorder->error_kind()) {  // too large for this device alone
      EXPECT_EQ(one.recorder->error_kind(), ErrorKind::kBudget) << one.recorder->error();
      EXPECT_TRUE(memory.has_value());
      continue;
    }
    const auto& expected = (is_linear ? alone_linear_ : alone_).of(one.request);
    for (size_t choice = 0; choice < expected.size(); ++choice) {
      EXPECT_EQ(one.recorder->choices()[choice].ids, expected[choice].ids);
      EXPECT_EQ(one.recorder->choices()[choice].logprobs, expected[choice].logprobs);
    }
  }
}

TEST_P(ServeRuns, EachRequestGetsWhatItGetsAlone) {
  for (uint64_t seed = 0; seed < static_cast<uint64_t>(seeds()); ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    run(seed);
    if (HasFatalFailure()) return;
  }
  if (std::string(GetParam()) == "emulated") {
    EXPECT_GT(preemptions_, 0u);
    EXPECT_GT(linear_preemptions_, 0u);
  }
}

INSTANTIATE_TEST_SUITE_P(Devices, ServeRuns, ::testing::Values("cpu", "emulated"));

}  // namespace
}  // namespace fasa::serve
