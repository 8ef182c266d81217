// Models on the CUDA device: over a fake runtime on the host, where projections are a plain loop
// and the kernels' bodies are interpreted, and on a GPU if there is one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "runtime/base/error.h"
#include "runtime/llm/compute/layer_engine.h"
#include "runtime/llm/generation/generator.h"
#include "runtime/llm/generation/open_prompt.h"
#include "tests/llm/llm_fixture.h"
#include "tests/support/fake_cuda.h"
#include "tests/support/gpu.h"
#include "tests/support/interpreted_kernels.h"

namespace fasa {
namespace {

using namespace llm_test;
using ::testing::AllOf;
using ::testing::HasSubstr;

double difference_to_golden(const std::string& name, Device& device, DType dtype, size_t chunk,
                            const WeightOptions& weights = {}) {
  const Golden golden = Golden::load(golden_dir(name));
  Model model = Model::load(golden_dir(name), device, dtype, weights);
  return relative_difference(prefill_logits(model, golden.tokens, chunk), golden,
                             static_cast<size_t>(model.config().vocab_size));
}

class CudaModel : public ::testing::TestWithParam<const char*> {};

TEST_P(CudaModel, LogitsEqualTransformers) {
  FakeCuda fake;
  {
    const auto device = open_device(cuda_options(), fake.platform());
    EXPECT_LE(difference_to_golden(GetParam(), *device, DType::kF32, 19), kF32Bound);
    EXPECT_LE(difference_to_golden(GetParam(), *device, DType::kBF16, 512), kBf16Bound);
  }
  EXPECT_EQ(fake.device_bytes, 0u);
  EXPECT_TRUE(fake.registered.empty());
}

INSTANTIATE_TEST_SUITE_P(Families, CudaModel, ::testing::ValuesIn(kDenseModels), by_folder);

class CudaLinearModel : public ::testing::TestWithParam<const char*> {};

TEST_P(CudaLinearModel, LogitsEqualTransformers) {
  FakeCuda fake;
  const auto device = open_device(cuda_options(), fake.platform());
  EXPECT_LE(difference_to_golden(GetParam(), *device, DType::kF32, 19), kF32Bound);
  EXPECT_LE(difference_to_golden(GetParam(), *device, DType::kBF16, 512), kBf16LinearBound);
}

INSTANTIATE_TEST_SUITE_P(Families, CudaLinearModel, ::testing::ValuesIn(kLinearModels), by_folder);

TEST(CudaLinearModelErrors, AHeadThatIsTooWideIsNamed) {
  ModelConfig config = ModelConfig::load(golden_dir("qwen3-5"));
  config.linear.key_dim = 129;
  FakeCuda fake;
  const auto device = open_device(cuda_options(), fake.platform());
  try {
    Model::random(config, *device, DType::kF32, 1);
    ADD_FAILURE();
  } catch (const UsageError& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("129"), HasSubstr("128"), HasSubstr("cuda:0")));
  }
}

// In bf16 a router may choose another expert than in f32.
class CudaExpertModel : public ::testing::TestWithParam<const char*> {};

TEST_P(CudaExpertModel, LogitsEqualTransformers) {
  FakeCuda fake;
  const auto device = open_device(cuda_options(), fake.platform());
  for (const size_t chunk : {7, 512}) {
    EXPECT_LE(difference_to_golden(GetParam(), *device, DType::kF32, chunk), kF32Bound) << chunk;
  }
}

INSTANTIATE_TEST_SUITE_P(Families, CudaExpertModel, ::testing::ValuesIn(kModelsWithExperts),
                         by_folder);
INSTANTIATE_TEST_SUITE_P(Linear, CudaExpertModel, ::testing::ValuesIn(kLinearModelsWithExperts),
                         by_folder);

// Attention is interpreted too: positions of all kinds, windows, wide heads that share one key.
class InterpretedModel : public ::testing::TestWithParam<const char*> {};

TEST_P(InterpretedModel, LogitsEqualTransformers) {
  FakeCuda fake;
  const auto device = open_device(cuda_options(), interpreted_platform(fake));
  EXPECT_LE(difference_to_golden(GetParam(), *device, DType::kF32, 512), kF32Bound);
  EXPECT_LE(difference_to_golden(GetParam(), *device, DType::kBF16, 19), kBf16Bound);
}

INSTANTIATE_TEST_SUITE_P(Families, InterpretedModel,
                         ::testing::Values("llama-gqa-bf16", "mistral-window", "ernie",
                                           "bloom-heads", "mpt", "deepseek-v2", "deepseek-v2-yarn",
                                           "granite", "ministral3", "glm4", "starcoder2", "cohere2",
                                           "olmo2", "olmo2-biases", "smollm3-window", "phi3",
                                           "gemma2", "gemma3", "gemma4", "gemma4-shared"),
                         by_folder);

// Logits of the last tokens, each decoded with a set of 24 earlier tokens. Slices are f32: their
// scores select the same tokens on every device. Low-bit tokens are a count: processors round the
// weights of all others.
std::vector<float> decoded_logits(Model& model, std::span<const int32_t> tokens) {
  constexpr size_t kDecoded = 6;
  Config config;
  config.selection.fac_tokens = {{.tokens = 24, .share = 0}};
  config.selection.slice_dtype = SliceDType::kF32;
  config.selection.low_bit_tokens = {.tokens = 1024, .share = 0};
  const Geometry geometry = model.config().geometry();
  Runtime runtime(model.device(), config, geometry, DType::kF32, all_slice_dims(geometry));
  const SequenceId id = runtime.create();
  const size_t prompt = tokens.size() - kDecoded;
  EXPECT_GT(prompt, 24u);
  const StepSequence fill[] = {{id, static_cast<int>(prompt), StepMode::kPrefill}};
  model.step(runtime, tokens.first(prompt), fill, {.no_logits = true});
  std::vector<float> all;
  for (size_t i = 0; i < kDecoded; ++i) {
    const StepSequence next[] = {{id, 1, StepMode::kDecode}};
    const auto logits = model.step(runtime, tokens.subspan(prompt + i, 1), next, {});
    all.insert(all.end(), logits.begin(), logits.end());
  }
  return all;
}

void expect_close(const std::vector<float>& given, const std::vector<float>& expected) {
  ASSERT_EQ(given.size(), expected.size());
  float largest = 0;
  for (const float logit : expected) largest = std::max(largest, std::abs(logit));
  for (size_t i = 0; i < given.size(); ++i) {
    ASSERT_NEAR(given[i], expected[i], kF32Bound * static_cast<double>(largest)) << i;
  }
}

void expect_the_processors_decodes(const std::string& name) {
  const Golden golden = Golden::load(golden_dir(name));
  const auto logits = [&](Device& device) {
    Model model = Model::load(golden_dir(name), device, DType::kF32);
    return decoded_logits(model, golden.tokens);
  };
  const auto cpu = open_test_device("cpu");
  FakeCuda fake;
  const auto device = open_device(cuda_options(), interpreted_platform(fake));
  expect_close(logits(*device), logits(*cpu));
}

TEST_P(InterpretedModel, SelectedDecodesAreTheProcessors) {
  expect_the_processors_decodes(GetParam());
}

// In f32 alone.
class InterpretedExpertModel : public ::testing::TestWithParam<const char*> {};

TEST_P(InterpretedExpertModel, LogitsEqualTransformers) {
  FakeCuda fake;
  const auto device = open_device(cuda_options(), interpreted_platform(fake));
  EXPECT_LE(difference_to_golden(GetParam(), *device, DType::kF32, 512), kF32Bound);
}

TEST_P(InterpretedExpertModel, SelectedDecodesAreTheProcessors) {
  expect_the_processors_decodes(GetParam());
}

INSTANTIATE_TEST_SUITE_P(Families, InterpretedExpertModel,
                         ::testing::Values("gemma4-moe", "qwen3-moe", "qwen3-moe-mixed", "mixtral",
                                           "gpt-oss", "deepseek-v2-moe-groups", "qwen3-5",
                                           "qwen3-5-moe", "qwen3-next"),
                         by_folder);

// A model with realistic widths: sixteen heads of 576 dimensions on one KV head.
TEST(InterpretedLatentModel, DecodesAreTheProcessors) {
  ModelConfig config = ModelConfig::load(golden_dir("deepseek-v2"));
  config.layers = 1;
  config.query_heads = 16;
  config.rotary_dims = 64;
  config.mla.latent = 512;
  config.mla.plain = config.mla.value = 128;
  config.head_dim = config.rotary_dims + config.mla.latent;
  std::vector<int32_t> tokens;
  for (int32_t i = 0; i < 72; ++i) tokens.push_back(i * 7 % config.vocab_size);
  const auto logits = [&](Device& device) {
    Model model = Model::random(config, device, DType::kF32, 3);
    return decoded_logits(model, tokens);
  };
  const auto cpu = open_test_device("cpu");
  FakeCuda fake;
  const auto device = open_device(cuda_options(), interpreted_platform(fake));
  expect_close(logits(*device), logits(*cpu));
}

struct TextOptions {
  std::string dir = bundled_dir();
  int tokens = 30;
  WeightOptions weights = {};
  GraphMetrics* graphs = nullptr;  // set if not null
};

// A bundled model's continuation of a text, with rows on the host and sets of 32 tokens.
std::vector<int32_t> continuation(Device& device, PredictorKind predictor,
                                  const TextOptions& wanted = {}) {
  Model model = Model::load(wanted.dir, device, std::nullopt, wanted.weights);
  const auto tokenizer = text::Tokenizer::load_if_present(wanted.dir);
  const std::string text = read_file(source_path("models/texts/ruth.txt")).substr(0, 200);
  Config config;
  config.selection.fac_tokens = {{.tokens = 32, .share = 0}};
  config.prefetch.predictor = predictor;
  config.prefetch.depth = predictor == PredictorKind::kNone ? 0 : 1;
  const Geometry geometry = model.config().geometry();
  Runtime runtime(device, config, geometry, model.config().row_dtype(), all_slice_dims(geometry));
  GenerateOptions options;
  options.max_tokens = wanted.tokens;
  options.prefill_chunk = 96;
  const GenerateResult result =
      generate(model, runtime, tokenizer->encode(text), options, tokenizer.get());
  EXPECT_FALSE(result.error) << *result.error;
  if (wanted.graphs != nullptr) *wanted.graphs = runtime.graph_metrics();
  return result.tokens;
}

TEST(CudaModelText, IsTheProcessors) {
  const auto cpu = open_test_device("cpu");
  const std::vector<int32_t> expected = continuation(*cpu, PredictorKind::kNone);
  EXPECT_EQ(expected.size(), 30u);
  for (const PredictorKind predictor : {PredictorKind::kNone, PredictorKind::kRunnersUp}) {
    FakeCuda fake;
    const auto device = open_device(cuda_options(), fake.platform());
    GraphMetrics graphs;
    EXPECT_EQ(continuation(*device, predictor, {.graphs = &graphs}), expected);
    EXPECT_GT(graphs.launched, predictor == PredictorKind::kNone ? 20u : 6u);
    EXPECT_LE(graphs.recorded, 4u);
  }
}

TEST(CudaModelText, StepsAreEnqueuedCallByCallOnRequest) {
  FakeCuda fake;
  const auto device = open_device(cuda_options(), fake.platform());
  Model model = Model::load(bundled_dir(), *device, std::nullopt);
  const Geometry geometry = model.config().geometry();
  Config config;
  config.selection.fac_tokens = {{.tokens = 32, .share = 0}};
  config.prefetch.depth = 0;
  Runtime runtime(*device, config, geometry, model.config().row_dtype(), all_slice_dims(geometry));
  const SequenceId sequence = runtime.create();
  runtime.reserve(sequence, 300, 96);
  const int32_t token = 1;
  const StepSequence prompt[] = {{sequence, 96, StepMode::kPrefill}};
  model.step(runtime, std::vector<int32_t>(96, token), prompt);
  const auto launched = [&](bool graphs) {
    const uint64_t before = runtime.graph_metrics().launched;
    const StepSequence step[] = {{sequence, 1, StepMode::kDecode}};
    for (int i = 0; i < 12; ++i) model.step(runtime, {&token, 1}, step, {.graphs = graphs});
    return runtime.graph_metrics().launched - before;
  };
  EXPECT_GT(launched(true), 6u);
  EXPECT_EQ(launched(false), 0u);
  EXPECT_GT(launched(true), 6u);
}

// Weights rounded at load time; steps that read packed weights are captured as graphs too.
TEST(CudaModelText, OfRoundedWeightsIsTheProcessors) {
  for (const WeightRounding rounding : {WeightRounding::kInt4, WeightRounding::kInt8}) {
    GraphMetrics graphs;
    TextOptions wanted;
    wanted.tokens = 12;
    wanted.weights.rounding = rounding;
    const auto cpu = open_test_device("cpu");
    const std::vector<int32_t> expected = continuation(*cpu, PredictorKind::kNone, wanted);
    EXPECT_EQ(expected.size(), 12u);
    FakeCuda fake;
    const auto device = open_device(cuda_options(), fake.platform());
    wanted.graphs = &graphs;
    EXPECT_EQ(continuation(*device, PredictorKind::kNone, wanted), expected);
    EXPECT_GT(graphs.launched, 6u);
    EXPECT_LE(graphs.recorded, 4u);
  }
}

TEST(CudaModelErrors, RoundedActivationsAreTheProcessors) {
  FakeCuda fake;
  const auto device = open_device(cuda_options(), fake.platform());
  WeightOptions rounded;
  rounded.rounding = WeightRounding::kInt4;
  rounded.activations = DecodeActivations::kInt8;
  try {
    Model::load(bundled_dir(), *device, std::nullopt, rounded);
    ADD_FAILURE();
  } catch (const UsageError& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("--activations int8"), HasSubstr("cuda:0")));
  }
}

// Selected attention too: TIP, hot rows and FAC with ALiBi, interleaved pairs and partly rotated
// keys.
TEST(CudaModelText, OfInterpretedKernelsIsTheProcessors) {
  for (const char* const name : {"alibi-400k", "pairs-400k", "partial-400k"}) {
    const TextOptions wanted{.dir = source_path(std::string("models/") + name), .tokens = 12};
    const auto cpu = open_test_device("cpu");
    const std::vector<int32_t> expected = continuation(*cpu, PredictorKind::kNone, wanted);
    EXPECT_EQ(expected.size(), 12u);
    FakeCuda fake;
    const auto device = open_device(cuda_options(), interpreted_platform(fake));
    EXPECT_EQ(continuation(*device, PredictorKind::kRunnersUp, wanted), expected) << name;
  }
}

// Logits of a model with random weights, after a prompt.
std::vector<float> random_logits(Device& device, uint64_t seed) {
  ModelConfig config = ModelConfig::load(golden_dir("llama-gqa-bf16"));
  config.vocab_size = 77;
  Model model = Model::random(config, device, DType::kBF16, seed);
  return prefill_logits(model, std::vector<int32_t>{1, 2, 3, 76, 0, 5, 6, 7, 8}, 4);
}

TEST(CudaModelRandom, IsTheSameModelOnEveryDevice) {
  const auto cpu = open_test_device("cpu");
  const std::vector<float> expected = random_logits(*cpu, 1);
  FakeCuda fake;
  const auto device = open_device(cuda_options(), fake.platform());
  const std::vector<float> given = random_logits(*device, 1);
  ASSERT_EQ(given.size(), expected.size());
  float largest = 0, other = 0;
  const std::vector<float> another = random_logits(*cpu, 2);
  for (size_t i = 0; i < expected.size(); ++i) {
    largest = std::max(largest, std::abs(expected[i]));
    other = std::max(other, std::abs(expected[i] - another[i]));
  }
  EXPECT_GT(largest, 0.1f);
  EXPECT_GT(other, 0.1f * largest);
  for (size_t i = 0; i < given.size(); ++i) {
    ASSERT_NEAR(given[i], expected[i], kBf16Bound * static_cast<double>(largest)) << i;
  }
}

// Records the queries, keys and values of all layers that an observer receives.
class Recorder final : public LayerObserver {
 public:
  void on_layer(int, ConstTensorView q, ConstTensorView k, ConstTensorView v, int64_t) override {
    for (const ConstTensorView& view : {q, k, v}) add(view);
  }
  std::vector<float> seen;

 private:
  void add(const ConstTensorView& view) {
    for (int64_t token = 0; token < view.tokens; ++token) {
      for (int64_t head = 0; head < view.heads; ++head) {
        for (int64_t d = 0; d < view.dim; ++d) {
          seen.push_back(load_element(view.dtype, view.data, view.offset(token, head) + d));
        }
      }
    }
  }
};

std::vector<float> observed(Device& device) {
  Model model = Model::load(golden_dir("qwen3"), device, DType::kF32);
  const Golden golden = Golden::load(golden_dir("qwen3"));
  const auto runtime = full_runtime(model);
  const SequenceId id = runtime->create();
  Recorder recorder;
  const std::span<const int32_t> tokens(golden.tokens);
  const StepSequence prompt[] = {{id, 9, StepMode::kPrefill}};
  model.step(*runtime, tokens.first(9), prompt, {.observer = &recorder});
  const StepSequence next[] = {{id, 1, StepMode::kDecode}};
  model.step(*runtime, tokens.subspan(9, 1), next, {.observer = &recorder});
  return recorder.seen;
}

TEST(CudaModelObserver, SeesWhatItSeesOnTheProcessor) {
  const auto cpu = open_test_device("cpu");
  const std::vector<float> expected = observed(*cpu);
  FakeCuda fake;
  const auto device = open_device(cuda_options(), fake.platform());
  const std::vector<float> given = observed(*device);
  ASSERT_EQ(given.size(), expected.size());
  for (size_t i = 0; i < given.size(); ++i) ASSERT_NEAR(given[i], expected[i], 2e-4) << i;
}

template <typename Failure>
std::string error_of_load(const std::string& dir, Device& device) {
  try {
    Model::load(dir, device, std::nullopt);
  } catch (const Failure& error) {
    return error.what();
  }
  return "";
}

// A model with more or wider query heads than a GPU can score: an error where slices are read.
TEST(CudaModelErrors, WhatCannotBeScoredIsNamed) {
  FakeCuda fake;
  const auto device = open_device(cuda_options(), fake.platform());
  Geometry geometry = ModelConfig::load(golden_dir("deepseek-v2")).geometry();
  geometry.query_heads = 128;
  geometry.key_dim = 576;
  const auto make = [&](SelectionKind kind) {
    Config config;
    config.selection.kind = kind;
    Runtime(*device, config, geometry, DType::kBF16, all_slice_dims(geometry));
  };
  EXPECT_NO_THROW(make(SelectionKind::kFull));
  try {
    make(SelectionKind::kFasa);
    ADD_FAILURE();
  } catch (const UsageError& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("128"), HasSubstr("tip_chunks"), HasSubstr("cpu")));
  }
}

TEST(CudaModelErrors, WeightsStayWithinTheBudget) {
  FakeCuda fake;
  DeviceOptions options = cuda_options();
  options.device_memory = 1 << 20;
  {
    const auto device = open_device(options, fake.platform());
    EXPECT_THAT(error_of_load<BudgetError>(bundled_dir(), *device),
                AllOf(HasSubstr("device_memory"), HasSubstr("weights")));
    EXPECT_EQ(device->memory(MemorySpace::kDevice).used_bytes, 0u);
  }
  EXPECT_EQ(fake.device_bytes, 0u);
}

// Each operation in turn fails while it runs: the call throws a DeviceError, and teardown is clean.
TEST(CudaModelErrors, AFailureEndsInOrder) {
  int64_t failed = 0;
  for (bool all = false; !all; ++failed) {
    FakeCuda fake;
    std::string said;
    {
      const auto device = open_device(cuda_options(), fake.platform());
      fake.fail_operation(failed + 1);
      try {
        observed(*device);
        all = true;
      } catch (const DeviceError& error) {
        said = error.what();
      }
    }
    ASSERT_THAT(said, HasSubstr(all ? "" : "cudaErrorIllegalAddress")) << failed + 1;
    ASSERT_EQ(fake.device_bytes, 0u);
    ASSERT_EQ(fake.live_streams, 0);
  }
  EXPECT_GT(failed, 50);
}

class CudaModelOnGpu : public ::testing::Test {
 protected:
  void SetUp() override { FASA_NEEDS_GPU(); }
};

TEST_F(CudaModelOnGpu, LogitsEqualTransformers) {
  const auto device = open_device(cuda_options());
  for (const char* const family : kDenseModels) {
    EXPECT_LE(difference_to_golden(family, *device, DType::kF32, 19), kF32Bound) << family;
    EXPECT_LE(difference_to_golden(family, *device, DType::kBF16, 512), kBf16Bound) << family;
  }
  for (const char* const family : kLinearModels) {
    EXPECT_LE(difference_to_golden(family, *device, DType::kF32, 19), kF32Bound) << family;
    EXPECT_LE(difference_to_golden(family, *device, DType::kBF16, 512), kBf16LinearBound) << family;
  }
}

// Experts on the host and on the device.
TEST_F(CudaModelOnGpu, LogitsOfExpertsEqualTransformers) {
  const auto device = open_device(cuda_options());
  for (const ExpertLocation location : {ExpertLocation::kDevice, ExpertLocation::kHost}) {
    WeightOptions weights;
    weights.experts = location;
    for (const char* const family : kModelsWithExperts) {
      for (const size_t chunk : {1, 19}) {
        EXPECT_LE(difference_to_golden(family, *device, DType::kF32, chunk, weights), kF32Bound)
            << family;
      }
    }
  }
}

TEST_F(CudaModelOnGpu, LogitsOfLinearLayersAndExpertsEqualTransformers) {
  const auto device = open_device(cuda_options());
  for (const char* const family : kLinearModelsWithExperts) {
    for (const size_t chunk : {1, 19, 512}) {
      EXPECT_LE(difference_to_golden(family, *device, DType::kF32, chunk), kF32Bound) << family;
    }
  }
}

// Rows on the host; the matrix products of other counts of rows may round in another way.
TEST_F(CudaModelOnGpu, PromptsReadLayerByLayerHaveTheLogitsOfSteps) {
  const auto device = open_device(cuda_options());
  for (const char* const family : {"llama-gqa-bf16", "qwen3", "deepseek-v2"}) {
    const Golden golden = Golden::load(golden_dir(family));
    Model model = Model::load(golden_dir(family), *device, DType::kF32);
    const auto runtime = host_runtime(model);
    const SequenceId sequence = runtime->create();
    std::vector<int32_t> prompt;
    while (prompt.size() < 300) {
      prompt.insert(prompt.end(), golden.tokens.begin(), golden.tokens.end());
    }
    const std::vector<float> expected = logits_by_steps(model, *runtime, runtime->create(), prompt);
    auto open = OpenPrompt::open(model, *runtime, sequence, prompt, {.piece = 40, .chunk = 128});
    ASSERT_TRUE(open) << family;
    while (!open->work()) {
    }
    ASSERT_EQ(open->logits().size(), expected.size());
    for (size_t i = 0; i < expected.size(); ++i) {
      ASSERT_NEAR(open->logits()[i], expected[i], 1e-4) << family << ' ' << i;
    }
  }
}

TEST_F(CudaModelOnGpu, TextIsTheProcessors) {
  const auto cpu = open_test_device("cpu");
  const auto gpu = open_device(cuda_options());
  EXPECT_EQ(continuation(*gpu, PredictorKind::kNone), continuation(*cpu, PredictorKind::kNone));
}

}  // namespace
}  // namespace fasa
