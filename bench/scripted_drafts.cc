// What drafts of a head of multi-token prediction bring where it is right as often as published:
// answers of a model with random weights, whose head drafts as ever, and takes the time for it, but
// each token that it names is replaced by the right one with the given probability, else by a wrong
// one.
//
//   scripted_drafts MODEL [--acceptance P] [--context N] [--tokens N] [--rounds N]
//                   [flags of [weights], --threads]
//
// bench/mtp_model.py writes a MODEL. Answers with and without drafts take turns and must be equal.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "bench/config_flags.h"
#include "runtime/base/error.h"
#include "runtime/llm/compute/open_model.h"
#include "runtime/llm/generation/drafted_step.h"
#include "runtime/llm/generation/mtp_drafts.h"
#include "runtime/llm/generation/owned_sequence.h"

namespace fasa::bench {
namespace {

struct Options {
  std::string model;
  double acceptance = 0.8;
  int context = 512;
  int tokens = 192;
  int rounds = 5;
  Config config;
};

// The head's drafts, with other tokens.
class ScriptedDrafts final : public DraftSource {
 public:
  ScriptedDrafts(MtpCache& cache, std::span<const int32_t> prompt,
                 const std::vector<int32_t>& answer, double acceptance, uint32_t seed)
      : head_(cache, 0), answer_(answer), acceptance_(acceptance), random_(seed) {
    for (const int32_t token : prompt) head_.append(token);
  }

  void append(int32_t token) override {
    head_.append(token);
    ++said_;
  }
  size_t size() const override { return head_.size(); }
  std::span<const int32_t> propose(int most, int others, const BatchTimes& times) override {
    const auto own = head_.propose(most, others, times);
    drafts_.assign(own.begin(), own.end());
    for (size_t i = 0; i < drafts_.size(); ++i) {
      const size_t at = said_ + i;
      if (at >= answer_.size()) continue;
      drafts_[i] = chance_(random_) < acceptance_ ? answer_[at] : answer_[at] ^ 1;
    }
    return drafts_;
  }
  void judged(int right) override { head_.judged(right); }
  void reserve(int64_t tokens) override { head_.reserve(tokens); }
  float* step_states(int tokens) override { return head_.step_states(tokens); }
  void computed(float* states, int tokens) override { head_.computed(states, tokens); }

 private:
  MtpDrafts head_;
  const std::vector<int32_t>& answer_;
  double acceptance_;
  size_t said_ = 0;  // of the answer
  std::vector<int32_t> drafts_;
  std::mt19937 random_;
  std::uniform_real_distribution<double> chance_{0, 1};
};

struct Answered {
  std::vector<int32_t> tokens;
  double seconds = 0;
  int steps = 0;
  Answer::DraftCounts drafts;
};

// `expected`: the answer; null: without drafts.
Answered answer(OpenModel& opened, Runtime& runtime, MtpCache& cache, const Options& options,
                const std::vector<int32_t>* expected, uint32_t seed = 0) {
  std::vector<int32_t> prompt(static_cast<size_t>(options.context));
  for (size_t i = 0; i < prompt.size(); ++i) {
    prompt[i] = static_cast<int32_t>((7919 * i + 13) % 32000);
  }
  AnswerOptions how;
  how.max_tokens = options.tokens;
  how.ignore_eos = true;
  how.sampling.temperature = 0;
  Answer answer(how, {}, nullptr, prompt);
  const OwnedSequence sequence(runtime);
  std::unique_ptr<DraftSource> drafts;
  if (expected != nullptr) {
    drafts = std::make_unique<ScriptedDrafts>(cache, prompt, *expected, options.acceptance, seed);
    drafts->reserve(options.context + options.tokens);
  }
  const StepSequence whole[] = {{sequence.id(), options.context, StepMode::kPrefill}};
  float* const states = drafts ? drafts->step_states(options.context) : nullptr;
  bool more = answer.take(opened.model.step(runtime, prompt, whole, {.states = states}));
  if (drafts) drafts->computed(states, options.context);
  DraftedSteps steps(opened.model, runtime, sequence.id(), answer, how, std::move(drafts));
  Answered found;
  const auto begin = std::chrono::steady_clock::now();
  for (; more; ++found.steps) more = steps.step([] {});
  found.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  found.tokens = answer.tokens();
  found.drafts = answer.drafts();
  return found;
}

int run(Options options) {
  options.config.drafts.kind = DraftKind::kMtp;  // reads the head
  OpenModel opened = open_model(options.model, options.config);
  const auto runtime = opened.make_runtime(options.context + options.tokens);
  MtpCache cache(opened.model, runtime->traits().row_dtype);
  std::vector<double> ratios;
  for (int round = 0; round < options.rounds; ++round) {
    const Answered plain = answer(opened, *runtime, cache, options, nullptr);
    const Answered drafted =
        answer(opened, *runtime, cache, options, &plain.tokens, static_cast<uint32_t>(round));
    if (plain.tokens != drafted.tokens) throw DeviceError("drafts changed the answer");
    ratios.push_back(plain.seconds / drafted.seconds);
    fmt::print("{:.2f} times: {:.1f} and {:.1f} tokens/s, {} steps, {} of {} drafts right\n",
               ratios.back(), plain.steps / plain.seconds, plain.steps / drafted.seconds,
               drafted.steps, drafted.drafts.right, drafted.drafts.made);
  }
  std::sort(ratios.begin(), ratios.end());
  fmt::print("median {:.2f} ({:.2f} to {:.2f})\n", ratios[ratios.size() / 2], ratios.front(),
             ratios.back());
  return 0;
}

int main_checked(int argc, char** argv) {
  CLI::App app;
  Options options;
  app.add_option("MODEL", options.model)->required();
  app.add_option("--acceptance", options.acceptance)->check(CLI::Range(0.0, 1.0));
  app.add_option("--context", options.context)->check(CLI::Range(1, 1 << 20));
  app.add_option("--tokens", options.tokens)->check(CLI::Range(2, 1 << 20));
  app.add_option("--rounds", options.rounds)->check(CLI::Range(1, 1000));
  const ConfigFlags flags(app);
  CLI11_PARSE(app, argc, argv);
  options.config = flags.config();
  return run(options);
}

}  // namespace
}  // namespace fasa::bench

int main(int argc, char** argv) {
  return fasa::bench::run_program("scripted_drafts", fasa::bench::main_checked, argc, argv);
}
