// Heads of multi-token prediction: their logits are those of a reference in torch
// (tests/golden/mtp_head.py), and answers with their drafts are, bit for bit, those without.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>

#include "runtime/base/error.h"
#include "runtime/llm/generation/generator.h"
#include "runtime/llm/generation/mtp_drafts.h"
#include "tests/llm/llm_fixture.h"
#include "tests/support/fake_cuda.h"
#include "tests/support/interpreted_kernels.h"

namespace fasa {
namespace {

using namespace llm_test;
using ::testing::AllOf;
using ::testing::HasSubstr;

const WeightOptions kWithHead = [] {
  WeightOptions options;
  options.mtp_head = true;
  return options;
}();
// The token that the heads of the golden models predict behind itself.
constexpr int32_t kRepeated = 3;

struct MtpCase {
  const char* path;  // of a model in the golden folders
  const char* device = "cpu";
};

class MtpTest : public ::testing::TestWithParam<MtpCase> {
 protected:
  const std::string path_ = golden_dir(GetParam().path);
  const std::string dir_ =
      path_.ends_with(".gguf") ? path_.substr(0, path_.rfind('/')) : path_;  // with the goldens
  // Runs what the CUDA device enqueues; its kernels are interpreted.
  FakeCuda fake_;
  const bool quick_ = GetParam().device != std::string("cuda:0");
  const std::unique_ptr<Device> device_ = open();
  Model model_ = Model::load(path_, *device_, DType::kF32, kWithHead);
  const int hidden_ = model_.config().hidden;

  std::unique_ptr<Device> open() {
    if (quick_) return open_test_device(GetParam().device);
    return open_device(cuda_options(), interpreted_platform(fake_));
  }

  // The tokens are read in steps of `chunk`.
  Buffer states_of(std::span<const int32_t> tokens, size_t chunk) {
    const auto runtime = full_runtime(model_);
    const SequenceId sequence = runtime->create();
    Buffer states =
        device_->allocate(MemorySpace::kDevice,
                          tokens.size() * static_cast<size_t>(hidden_) * sizeof(float), "states");
    for (size_t done = 0; done < tokens.size(); done += chunk) {
      const size_t count = std::min(chunk, tokens.size() - done);
      const StepSequence step[] = {{sequence, static_cast<int>(count), StepMode::kPrefill}};
      model_.step(
          *runtime, tokens.subspan(done, count), step,
          {.no_logits = true, .states = states.as<float>() + static_cast<int64_t>(done) * hidden_});
    }
    return states;
  }
};

std::string by_case(const ::testing::TestParamInfo<MtpCase>& test) {
  std::string name = fmt::format("{}_on_{}", test.param.path, test.param.device);
  std::replace_if(
      name.begin(), name.end(), [](char c) { return std::isalnum(c) == 0; }, '_');
  return name;
}

TEST_P(MtpTest, LogitsEqualTheReference) {
  const Golden golden = Golden::load(dir_, "mtp");
  const auto count = static_cast<int>(golden.tokens.size()) - 1;
  Model& head = *model_.mtp_head();
  for (const size_t chunk : {size_t{512}, size_t{7}}) {
    const Buffer states = states_of(golden.tokens, chunk);
    MtpCache cache(model_, RowDType::kF32);
    Runtime& runtime = cache.runtime();
    const SequenceId sequence = runtime.create();
    const Buffer own = cache.allocate_states(count);
    const StepSequence step[] = {{sequence, count, StepMode::kPrefill}};
    const auto logits = head.step(
        runtime, std::span(golden.tokens).subspan(1), step,
        {.all_logits = true, .states = own.as<float>(), .given_states = states.as<float>()});
    std::vector<float> all(logits.begin(), logits.end());
    // Then by its own state.
    const auto last = logits.last(static_cast<size_t>(head.config().vocab_size));
    const auto best =
        static_cast<int32_t>(std::max_element(last.begin(), last.end()) - last.begin());
    const StepSequence next[] = {{sequence, 1, StepMode::kDecode}};
    float* const state = own.as<float>() + int64_t{count - 1} * hidden_;
    const auto again = head.step(runtime, {&best, 1}, next, {.given_states = state});
    all.insert(all.end(), again.begin(), again.end());
    EXPECT_LE(relative_difference(all, golden, last.size()), kF32Bound) << chunk;
  }
}

// Drafts are what the head predicts, whatever waits and in whatever steps states come.
TEST_P(MtpTest, DraftsAreTheHeadsBestTokens) {
  const Golden golden = Golden::load(dir_);
  const std::span<const int32_t> tokens = golden.tokens;
  const Buffer states = states_of(tokens, 512);
  const auto drafts_in_steps = [&](size_t each) {
    MtpCache cache(model_, RowDType::kF32);
    MtpDrafts drafts(cache, 0);
    std::vector<int32_t> all;
    for (size_t done = 0; done + 1 < tokens.size(); done += each) {
      const size_t count = std::min(each, tokens.size() - 1 - done);
      for (size_t i = done == 0 ? 0 : done + 1; i <= done + count; ++i) drafts.append(tokens[i]);
      drafts.computed(states.as<float>() + static_cast<int64_t>(done) * hidden_,
                      static_cast<int>(count));
      EXPECT_LE(drafts.waiting(), MtpDrafts::kMaxWaiting);
      EXPECT_EQ(drafts.fed() + drafts.waiting(), static_cast<int64_t>(done + count));
    }
    const auto proposal = drafts.propose(MtpDrafts::kMost, 0, BatchTimes());
    EXPECT_EQ(drafts.waiting(), 0);
    return std::vector(proposal.begin(), proposal.end());
  };
  const std::vector<int32_t> expected = drafts_in_steps(tokens.size());
  EXPECT_EQ(expected.size(), size_t{MtpDrafts::kMost});
  const std::vector<size_t> steps = {17, 3, 1, 15, 16, 40};
  for (const size_t each : std::span(steps).first(quick_ ? steps.size() : 2)) {
    EXPECT_EQ(drafts_in_steps(each), expected);
  }
}

GenerateResult answer_of(Model& model, DraftKind drafts, GenerateOptions options, size_t prompt) {
  const auto runtime = full_runtime(model);
  std::vector<int32_t> tokens(prompt);
  for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<int32_t>(i * i % 23);
  options.drafts = drafts;
  options.logprobs = 2;
  return generate(model, *runtime, tokens, options, nullptr);
}

void expect_equal(const GenerateResult& drafted, const GenerateResult& plain) {
  EXPECT_EQ(drafted.tokens, plain.tokens);
  EXPECT_EQ(drafted.end, plain.end);
  EXPECT_EQ(drafted.cache_tokens, plain.cache_tokens);
  ASSERT_EQ(drafted.logprobs.size(), plain.logprobs.size());
  for (size_t i = 0; i < plain.logprobs.size(); ++i) {
    EXPECT_EQ(drafted.logprobs[i].logprob, plain.logprobs[i].logprob) << i;
    EXPECT_EQ(drafted.logprobs[i].top, plain.logprobs[i].top) << i;
  }
  EXPECT_EQ(drafted.decoded_tokens, drafted.decode_steps + drafted.drafts.right);
}

TEST_P(MtpTest, AnswersDoNotDependOnDrafts) {
  const std::vector<double> temperatures = {0.7, 0, 1.5};
  for (const double temperature : std::span(temperatures).first(quick_ ? 3 : 1)) {
    GenerateOptions options{.max_tokens = quick_ ? 100 : 12};
    options.sampling.temperature = temperature;
    options.sampling.seed = 5;
    options.sampling.presence_penalty = 0.1;
    const GenerateResult plain = answer_of(model_, DraftKind::kNone, options, 50);
    const GenerateResult drafted = answer_of(model_, DraftKind::kMtp, options, 50);
    expect_equal(drafted, plain);
    EXPECT_GT(drafted.drafts.made, 0);
  }
}

// Nearly all tokens are the repeated one, so runs of right drafts end at every place of a page.
TEST_P(MtpTest, RightDraftsEndWithPagesAndAnswers) {
  GenerateOptions options{.max_tokens = 90};
  options.sampling.temperature = 1;
  options.sampling.logit_bias = {{kRepeated, 100.0f}, {5, 90.0f}};
  int64_t right = 0;
  const size_t first = quick_ ? 55 : 60, last = quick_ ? 69 : 60, length = quick_ ? 145 : 68;
  for (size_t prompt = first; prompt <= last; ++prompt) {
    options.max_tokens = static_cast<int64_t>(length - prompt);
    options.sampling.seed = prompt;
    const GenerateResult plain = answer_of(model_, DraftKind::kNone, options, prompt);
    const GenerateResult drafted = answer_of(model_, DraftKind::kMtp, options, prompt);
    expect_equal(drafted, plain);
    right += drafted.drafts.right;
  }
  EXPECT_GT(right, 0);
}

INSTANTIATE_TEST_SUITE_P(Models, MtpTest,
                         ::testing::Values(MtpCase{"qwen3-5-mtp"}, MtpCase{"qwen3-5-moe-mtp"},
                                           MtpCase{"glm4-moe-mtp"}, MtpCase{"qwen3-5-mtp/mtp.gguf"},
                                           MtpCase{"glm4-moe-mtp/mtp.gguf"},
                                           MtpCase{"qwen3-5-mtp", "emulated"},
                                           MtpCase{"glm4-moe-mtp", "emulated"},
                                           MtpCase{"qwen3-5-mtp", "cuda:0"}),
                         by_case);

template <typename Error, typename Call>
std::string message_of(const Call& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(MtpRefusals, FilesWithoutHeads) {
  const auto device = open_test_device("cpu");
  const auto load = [&](const char* name) {
    return message_of<InputError>(
        [&] { Model::load(golden_dir(name), *device, DType::kF32, kWithHead); });
  };
  EXPECT_THAT(load("qwen3-5"),
              AllOf(HasSubstr("model.safetensors: the model has no head of multi-token prediction"),
                    HasSubstr("mtp.fc.weight"), HasSubstr("allowed: --drafts none, lookup")));
  EXPECT_THAT(load("glm4-moe"), HasSubstr("model.layers.3.eh_proj.weight"));
  EXPECT_THAT(load("llama-gqa-bf16"), HasSubstr("are not read for model_type llama"));
}

// Without memory for the head's keys and values answers go on.
TEST(MtpMemory, AnswersWithoutDrafts) {
  const auto device = open_test_device("cpu");
  Model model = Model::load(golden_dir("qwen3-5-mtp"), *device, DType::kF32, kWithHead);
  MtpCache cache(model, RowDType::kF32);
  MtpDrafts drafts(cache, 0);
  drafts.append(1);
  drafts.append(2);
  float* const states = drafts.step_states(1);
  ASSERT_NE(states, nullptr);
  std::fill_n(states, model.config().hidden, 0.5f);
  drafts.computed(states, 1);
  EXPECT_EQ(drafts.waiting(), 1);
  EXPECT_TRUE(drafts.release_memory());
  EXPECT_FALSE(drafts.release_memory());
  EXPECT_EQ(drafts.step_states(1), nullptr);
  drafts.computed(nullptr, 1);
  EXPECT_TRUE(drafts.propose(MtpDrafts::kMost, 0, BatchTimes()).empty());
}

TEST(MtpRefusals, ModelsWithoutTheirHead) {
  const auto device = open_test_device("cpu");
  Model model = Model::load(golden_dir("qwen3-5-mtp"), *device, DType::kF32);
  EXPECT_EQ(model.mtp_head(), nullptr);
  EXPECT_THAT(message_of<UsageError>([&] { answer_of(model, DraftKind::kMtp, {}, 10); }),
              HasSubstr("use drafts.kind = mtp when it is loaded"));
}

}  // namespace
}  // namespace fasa
