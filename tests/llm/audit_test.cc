// Audits: their figures are those of a direct computation, and answers do not depend on them.
#include "runtime/llm/generation/audit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/llm/generation/divergence.h"
#include "runtime/llm/generation/generator.h"
#include "tests/llm/llm_fixture.h"

namespace fasa {
namespace {

using namespace llm_test;

class AuditTest : public ::testing::Test {
 protected:
  static Config sparse() {
    Config config;
    config.selection.fac_tokens = {{.tokens = 24}};
    config.selection.low_bit_tokens = TokenCount{};  // so that the loss is not small
    return config;
  }
  std::unique_ptr<Runtime> runtime(const Model& model) const {
    const Geometry geometry = model.config().geometry();
    return std::make_unique<Runtime>(model.device(), sparse(), geometry, model.dtype(),
                                     all_slice_dims(geometry));
  }
  GenerateResult answer(Model& model, std::optional<int> every, DraftKind drafts) {
    const auto own = runtime(model);
    GenerateOptions options;
    options.max_tokens = 25;
    options.logprobs = 0;
    options.audit_every = every;
    options.drafts = drafts;
    return generate(model, *own, prompt_, options, nullptr);
  }
  const std::vector<int32_t> prompt_ = [] {
    const std::string text = read_file(source_path("models/texts/ruth.txt")).substr(40, 300);
    return std::vector<int32_t>(text.begin(), text.end());
  }();
};

class AuditedDevicesTest : public AuditTest, public ::testing::WithParamInterface<const char*> {};

// Decodes the answer's tokens up to `count`, and the next by a step of the given mode.
std::vector<float> logits_after(Model& model, Runtime& runtime, std::span<const int32_t> prompt,
                                std::span<const int32_t> tokens, size_t count, StepMode mode) {
  const SequenceId sequence = runtime.create();
  logits_by_steps(model, runtime, sequence, prompt);
  std::vector<float> last;
  for (size_t i = 0; i <= count; ++i) {
    const StepSequence step[] = {{sequence, 1, i == count ? mode : StepMode::kDecode}};
    const auto logits = model.step(runtime, tokens.subspan(i, 1), step);
    last.assign(logits.begin(), logits.end());
  }
  runtime.free(sequence);
  return last;
}

TEST_P(AuditedDevicesTest, FiguresAreThoseOfADirectComputation) {
  const auto device = open_test_device(GetParam());
  Model model = Model::load(bundled_dir(), *device, DType::kF32);
  constexpr int kEvery = 8;
  const GenerateResult plain = answer(model, 0, DraftKind::kNone);
  const GenerateResult audited = answer(model, kEvery, DraftKind::kNone);
  EXPECT_EQ(audited.tokens, plain.tokens);
  for (size_t i = 0; i < plain.logprobs.size(); ++i) {
    EXPECT_EQ(audited.logprobs[i].logprob, plain.logprobs[i].logprob) << i;
  }
  EXPECT_EQ(plain.audit.tokens, 0);
  AuditCounts expected;
  const auto own = runtime(model);
  for (size_t i = kEvery - 1; i + 1 < plain.tokens.size(); i += kEvery) {
    const auto of = [&](StepMode mode) {
      return logits_after(model, *own, prompt_, plain.tokens, i, mode);
    };
    const std::vector<float> full = of(StepMode::kPrefill), sparse = of(StepMode::kDecode);
    const double kl = kl_divergence(full, sparse);
    expected += {.tokens = 1,
                 .same_best = best_token(full) == best_token(sparse) ? 1 : 0,
                 .kl_sum = kl,
                 .kl_max = kl};
  }
  EXPECT_EQ(audited.audit.tokens, 3);
  EXPECT_EQ(audited.audit.tokens, expected.tokens);
  EXPECT_EQ(audited.audit.same_best, expected.same_best);
  EXPECT_EQ(audited.audit.kl_sum, expected.kl_sum);
  EXPECT_EQ(audited.audit.kl_max, expected.kl_max);
  EXPECT_GT(audited.audit.kl_max, 1e-7);
}

TEST_F(AuditTest, BesideDraftsAndByTime) {
  const auto device = open_test_device("cpu");
  Model model = Model::load(bundled_dir(), *device, DType::kF32);
  const GenerateResult plain = answer(model, 0, DraftKind::kNone);
  const GenerateResult both = answer(model, 1, DraftKind::kLookup);
  EXPECT_EQ(both.tokens, plain.tokens);
  EXPECT_EQ(both.audit.tokens, both.decode_steps);
  const GenerateResult by_time = answer(model, std::nullopt, DraftKind::kNone);
  EXPECT_EQ(by_time.tokens, plain.tokens);
  EXPECT_LE(by_time.audit.tokens, 2);
}

INSTANTIATE_TEST_SUITE_P(Devices, AuditedDevicesTest, ::testing::Values("cpu", "emulated"),
                         [](const auto& test) { return std::string(test.param); });

TEST(AuditedModelTest, LayersWithLinearAttentionAreForked) {
  const auto device = open_test_device("cpu");
  Model model = Model::load(golden_dir("qwen3-5"), *device, DType::kF32);
  const Geometry geometry = model.config().geometry();
  const auto answer = [&](int every) {
    Runtime runtime(*device, Config(), geometry, model.dtype(), all_slice_dims(geometry));
    GenerateOptions options;
    options.max_tokens = 12;
    options.audit_every = every;
    const std::vector<int32_t> prompt = {4, 8, 15, 16, 23, 42};
    return generate(model, runtime, prompt, options, nullptr);
  };
  const GenerateResult audited = answer(3);
  EXPECT_EQ(audited.tokens, answer(0).tokens);
  EXPECT_GE(audited.audit.tokens, 1);
  EXPECT_LT(audited.audit.kl_max, 1e-6) << "the context is shorter than the set";
}

}  // namespace
}  // namespace fasa
