// Plans against the runtimes that they describe.
#include "runtime/plan/planner.h"

#include <gtest/gtest.h>

#include "offload/open_device.h"
#include "runtime/base/error.h"
#include "runtime/catalog/geometry_catalog.h"
#include "runtime/config/config_load.h"
#include "runtime/config/config_options.h"
#include "runtime/llm/compute/activations.h"
#include "runtime/llm/config/model_shape.h"
#include "tests/support/filled_runtime.h"
#include "tests/support/source_path.h"

namespace fasa {
namespace {

constexpr uint64_t kGiB = uint64_t{1} << 30;

PlanOptions request_of(const char* model, const char* gpu, int64_t tokens) {
  PlanOptions request;
  request.model = find_model_shape(model);
  request.config.device.gpu = gpu;
  request.machine = make_plan_machine(request.config, {});
  request.tokens = tokens;
  return request;
}

// Compared with the device's own counter.
TEST(Planner, MemoryIsWhatARuntimeTakes) {
  PlanOptions request = request_of("Llama-3.2-1B", "RTX 3060", 5000);
  request.config.selection.fac_tokens = {{.tokens = 512, .share = 0}};
  request.config.selection.dense_layers = {3};
  request.config.placement.hot_rows = 700;
  request.machine.traits = kEmulatedTraits;  // a GPU's selection has its own scratch
  const Plan plan = make_plan(request);
  for (const PlanOption& option : plan.options) {
    SCOPED_TRACE(option.config.preset);
    DeviceOptions options;
    options.name = "emulated";
    const auto device = open_device(options);
    const int chunks = option.config.effective_tip_chunks(request.model.geometry.chunks());
    Runtime runtime(*device, option.config, request.model.geometry, DType::kBF16,
                    first_chunk_dims(request.model.geometry, chunks), request.tokens);
    const SequenceId sequence = runtime.create();
    const uint64_t opened = device->memory(MemorySpace::kDevice).used_bytes;
    runtime.reserve(sequence, request.tokens, kMinPrefillChunk);
    const KvMemory held = runtime.memory();
    EXPECT_EQ(option.kv.device_slices, held.device_slices);
    EXPECT_EQ(option.kv.device_rows, held.device_rows);
    EXPECT_EQ(option.kv.device_hot_rows, held.device_hot_rows);
    EXPECT_EQ(option.kv.host_rows, held.host_rows);
    // Two tables of page addresses are planned, which grow by powers of two.
    const auto taken =
        static_cast<double>(device->memory(MemorySpace::kDevice).used_bytes - opened);
    EXPECT_NEAR(static_cast<double>(option.kv.device_total()), taken, 2 * 128 * sizeof(void*));
    EXPECT_EQ(option.device_bytes,
              option.kv.device_total() + plan.weight_bytes + plan.activation_bytes);
  }
}

TEST(Planner, TheLongestContextIsTheLongest) {
  PlanOptions request = request_of("Llama-3.1-8B", "RTX 4060 Ti 16GB", 131072);
  request.weight_bits = 4;
  const Plan plan = make_plan(request);
  for (size_t i = 0; i < plan.options.size(); ++i) {
    const int64_t longest = plan.options[i].longest_context.value();
    ASSERT_GT(longest, 0);
    request.tokens = longest;
    EXPECT_TRUE(make_plan(request).options[i].fits) << plan.options[i].config.preset;
    request.tokens = longest + 1;
    EXPECT_FALSE(make_plan(request).options[i].fits) << plan.options[i].config.preset;
  }
}

TEST(Planner, RowsOnTheHostReachFurther) {
  PlanOptions request = request_of("Llama-3.1-8B", "RTX 4060 Ti 16GB", 131072);
  request.weight_bits = 4;
  const Plan plan = make_plan(request);
  EXPECT_GT(plan.option("fasa-m").longest_context, 7 * *plan.option("fasa-c").longest_context);
  request.config.selection.low_bit_tokens = TokenCount{};  // codes of keys alone
  const Plan keys = make_plan(request);
  EXPECT_GT(keys.option("fasa-m").longest_context, 10 * *keys.option("fasa-c").longest_context);
  EXPECT_GT(plan.option("full").longest_context, plan.option("fasa-c").longest_context);
  ASSERT_TRUE(plan.recommended.has_value());
  EXPECT_EQ(plan.options[*plan.recommended].config.preset, "fasa-m");
}

TEST(Planner, ShortContextsAreRecommendedFull) {
  const Plan plan = make_plan(request_of("Llama-3.2-1B", "RTX 4090", 512));
  ASSERT_TRUE(plan.recommended.has_value());
  EXPECT_EQ(plan.options[*plan.recommended].config.preset, "full");
}

TEST(Planner, NothingFitsWhereTheWeightsDoNot) {
  const PlanOptions request = request_of("Llama-3.1-70B", "RTX 3060", 4096);
  const Plan plan = make_plan(request);
  EXPECT_FALSE(plan.recommended.has_value());
  EXPECT_EQ(recommended_toml(request, plan), "");
  for (const PlanOption& option : plan.options) {
    EXPECT_EQ(option.longest_context, 0);
    EXPECT_FALSE(option.fits);
  }
}

TEST(Planner, FewerHotRowsWhereMemoryIsShort) {
  PlanOptions request = request_of("Llama-3.1-8B", "RTX 4060 Ti 16GB", 131072);
  request.weight_bits = 4;
  request.config.selection.fac_tokens = {{.tokens = 8192, .share = 0}};
  const PlanOption whole = make_plan(request).option("fasa-m");
  EXPECT_EQ(whole.hot_rows, 16384);
  request.machine.reserved_bytes = 0;
  request.machine.device_memory = whole.device_bytes - kGiB / 2;
  const PlanOption less = make_plan(request).option("fasa-m");
  EXPECT_TRUE(less.fits);
  EXPECT_EQ(less.hot_rows, 8192);
  request.config.placement.hot_rows = 16384;  // set by the user: not changed
  EXPECT_FALSE(make_plan(request).option("fasa-m").fits);
}

// The memory of a decoding sequence, by the runtime's own counter.
TEST(Planner, ExtraHotRowsAreWhatARuntimeTakes) {
  PlanOptions request = request_of("Llama-3.2-1B", "RTX 3060", 1536);
  request.config.selection.fac_tokens = {{.tokens = 100, .share = 0}};
  request.config.prefetch.depth = 0;
  request.machine.traits = kEmulatedTraits;
  request.machine.traits.rates.link_bandwidth = 7.5e9;
  request.machine.reserved_bytes = 0;
  request.machine.device_memory = kGiB;
  request.weights = PlannedWeights{};
  const PlanOption option = make_plan(request).option("fasa-m");
  ASSERT_TRUE(option.fits);
  EXPECT_EQ(option.extra_hot_rows, 1300);  // 13 sets
  DeviceOptions options;
  options.name = "emulated";
  options.device_memory = kGiB;
  options.link_bandwidth = 7.5e9;
  FilledRuntime filled(options, option.config, request.model.geometry,
                       first_chunk_dims(request.model.geometry, option.chunks),
                       request.tokens - FilledRuntime::kRoom);
  const StepSequence part{filled.sequence(), 1, StepMode::kDecode};
  filled.runtime().begin_step({&part, 1});
  EXPECT_EQ(filled.runtime().memory().device_hot_rows, option.kv.device_hot_rows);
  EXPECT_EQ(filled.runtime().memory().device_extra, option.extra_bytes);
  filled.runtime().abort_step();
}

// Auto stays auto where it may take more than the plan reserves.
TEST(Planner, ExtraHotRowsAreNotForbidden) {
  PlanOptions request = request_of("Llama-3.1-8B", "RTX 4060 Ti 16GB", 131072);
  request.weight_bits = 4;
  for (const bool room : {true, false}) {
    const PlanOption option = make_plan(request).option("fasa-m");
    if (!room) request.machine.device_memory = option.device_bytes + request.machine.reserved_bytes;
    const Plan plan = make_plan(request);
    ASSERT_EQ(plan.options.at(plan.recommended.value()).config.preset, "fasa-m");
    EXPECT_EQ(plan.option("fasa-m").extra_hot_rows > 0, room);
    const Config config = load_config({.toml = recommended_toml(request, plan)});
    EXPECT_EQ(config.placement.hot_rows.has_value(), !room);
  }
}

TEST(Planner, HostMemoryIsALimitToo) {
  PlanOptions request = request_of("Llama-3.2-1B", "RTX 4090", 131072);
  EXPECT_TRUE(make_plan(request).option("fasa-m").fits);
  request.machine.host_memory = kGiB;
  EXPECT_FALSE(make_plan(request).option("fasa-m").fits);
}

TEST(Planner, TheRecommendationIsAConfig) {
  for (const int64_t tokens : {int64_t{500}, int64_t{32768}, int64_t{131072}}) {
    PlanOptions request = request_of("Llama-3.1-8B", "RTX 4060 Ti 16GB", tokens);
    request.weight_bits = 4;
    request.config.selection.slice_dtype = SliceDType::kInt4;
    request.config.selection.dense_layers = {0, 5};
    request.config.selection.fac_tokens = {{.tokens = 0, .share = 0.25}};
    const Plan plan = make_plan(request);
    const std::string text = recommended_toml(request, plan);
    const Config config = load_config({.toml = text});
    const PlanOption& option = plan.options.at(plan.recommended.value());
    EXPECT_EQ(config.preset, option.config.preset);
    EXPECT_EQ(config.selection.kind, option.config.selection.kind);
    EXPECT_EQ(config.selection.slice_dtype, option.config.selection.slice_dtype);
    EXPECT_EQ(config.selection.fac_tokens, option.config.selection.fac_tokens);
    EXPECT_EQ(config.selection.dense_layers, option.config.selection.dense_layers);
    EXPECT_EQ(config.placement.rows, option.config.placement.rows);
    if (option.hot_rows > 0 && option.extra_hot_rows == 0) {
      EXPECT_EQ(config.placement.hot_rows, option.hot_rows);
    }
  }
}

TEST(Planner, APromptIsReadAsMemoryAllows) {
  PlanOptions request = request_of("Llama-3.1-8B", "RTX 4060 Ti 16GB", 131072);
  request.weight_bits = 4;
  const PlanOption layers = make_plan(request).option("fasa-m");
  EXPECT_EQ(layers.prompt.chunk, kMaxChunkTokens);
  EXPECT_EQ(layers.prompt.piece, kPieceTokens);
  EXPECT_GT(layers.prompt.seconds, layers.prompt.products);
  const double rows = static_cast<double>(layers.prompt.rows_to_host);
  EXPECT_EQ(static_cast<double>(layers.prompt.rows_back), 1.5 * rows);
  // Without memory for a layer's rows, by steps.
  request.machine.device_memory = layers.device_bytes + request.machine.reserved_bytes + kGiB / 4;
  const PlanOption steps = make_plan(request).option("fasa-m");
  EXPECT_TRUE(steps.fits);
  EXPECT_EQ(steps.prompt.piece, 0);
  EXPECT_EQ(steps.prompt.chunk, 1024);
  EXPECT_EQ(static_cast<double>(steps.prompt.rows_back), 63.5 * rows);
  EXPECT_GT(steps.prompt.seconds, layers.prompt.seconds);
  EXPECT_GE(steps.prompt.operations, layers.prompt.operations);
  request.prefill_chunk = 512;
  EXPECT_EQ(make_plan(request).option("fasa-m").prompt.chunk, 512);
}

TEST(Planner, ExpertsOnTheHostCrossTheLinkOnceAChunk) {
  PlanOptions request = request_of("Llama-3.1-8B", "RTX 4060 Ti 16GB", 131072);
  const uint64_t experts = 15 * kGiB;
  request.weights = PlannedWeights{.total = 2 * kGiB,
                                   .layers = kGiB,
                                   .activations = kGiB / 8,
                                   .activations_per_token = kGiB / 8 / 1024,
                                   .host = experts,
                                   .experts = experts,
                                   .chosen = experts / 16};
  const PlanOption layers = make_plan(request).option("fasa-m");
  EXPECT_EQ(layers.prompt.chunk, kMaxChunkTokens);
  EXPECT_EQ(layers.prompt.experts, 4 * experts);
  EXPECT_GE(layers.prompt.link * 12.6e9, 4.0 * static_cast<double>(experts));
  // Nearly all of them once a step of 1,024 tokens.
  request.machine.device_memory = layers.device_bytes + request.machine.reserved_bytes + kGiB / 4;
  const PlanOption steps = make_plan(request).option("fasa-m");
  EXPECT_EQ(steps.prompt.piece, 0);
  const double by_steps = 131072.0 / steps.prompt.chunk * static_cast<double>(experts);
  EXPECT_NEAR(static_cast<double>(steps.prompt.experts) / by_steps, 1, 1e-3);
}

// The runtime decides by what it counts.
TEST(Planner, PrefetchIsPricedWhereItPays) {
  PlanOptions request = request_of("Llama-3.1-8B", "RTX 4060 Ti 16GB", 131072);
  request.weight_bits = 4;
  request.config.selection.fac_tokens = {{.tokens = 2048, .share = 0}};
  // Nothing is fetched while heads are scored, or while codes are attended to.
  request.config.prefetch.head_groups = 1;
  request.config.selection.low_bit_tokens = TokenCount{};
  request.prediction.coverage = 1;
  const PlanOption foreseen = make_plan(request).option("fasa-m");
  EXPECT_EQ(foreseen.config.prefetch.depth, std::nullopt);
  EXPECT_EQ(foreseen.seconds(), foreseen.prefetched->whole.total());
  request.prediction.coverage = 0;
  const PlanOption blind = make_plan(request).option("fasa-m");
  EXPECT_EQ(blind.seconds(), blind.step.whole.total());
  request.config.prefetch.depth = 2;  // set by the user: not changed
  const PlanOption asked = make_plan(request).option("fasa-m");
  EXPECT_EQ(asked.config.prefetch.depth, 2);
  EXPECT_EQ(asked.config.prefetch.predictor, PredictorKind::kAuto);
  EXPECT_EQ(asked.kv.device_scratch, foreseen.kv.device_scratch);
}

TEST(Planner, AProcessorIsOneTier) {
  PlanOptions request;
  request.model = find_model_shape("Llama-3.2-1B");
  request.tokens = 8192;
  request.machine.rates.unified = true;
  request.machine.traits = kHostTraits;
  request.machine.device_memory = 64 * kGiB;
  const Plan plan = make_plan(request);
  EXPECT_THROW(plan.option("fasa-m"), UsageError);
  EXPECT_EQ(plan.option("fasa-c").host_bytes, 0u);
  EXPECT_FALSE(plan.option("fasa-c").prefetched.has_value());
  EXPECT_LT(plan.option("fasa-c").step.attention.total(),
            plan.option("full").step.attention.total());
}

TEST(Planner, Int8RowsTakeHalfOfTheHostAndTwiceTheHotRows) {
  PlanOptions request = request_of("Llama-3.1-8B", "RTX 4090", 131072);
  const PlanOption plain = make_plan(request).option("fasa-m");
  EXPECT_EQ(plain.host_bytes, 16 * kGiB);
  EXPECT_EQ(plain.int8_host_bytes, 8 * kGiB);
  request.row_dtype = RowDType::kInt8;
  const PlanOption coded = make_plan(request).option("fasa-m");
  EXPECT_EQ(coded.host_bytes, 8 * kGiB);
  EXPECT_EQ(coded.int8_host_bytes, 8 * kGiB);
  EXPECT_EQ(coded.hot_rows, 2 * plain.hot_rows);
}

TEST(Planner, BadTokens) {
  EXPECT_THROW(make_plan(request_of("Llama-3.2-1B", "RTX 4090", 0)), UsageError);
  EXPECT_THROW(make_plan(request_of("Llama-3.2-1B", "RTX 4090", int64_t{1} << 40)), UsageError);
}

TEST(PlanMachine, GivenFiguresWin) {
  Config config;
  config.device.gpu = "RTX 4060 Ti 16GB";
  PlanMachine machine = make_plan_machine(config, {});
  EXPECT_EQ(machine.rates.memory_bandwidth, 288e9);
  EXPECT_NEAR(machine.rates.link_bandwidth, 12.6e9, 1e8);
  EXPECT_EQ(machine.usable_device_bytes(), 16 * kGiB - kGiB / 2);
  config = load_config({.toml = "[link]\nbandwidth = \"25GB/s\"\n[device]\ngpu = \"rtx 4090\"\n"});
  EXPECT_EQ(make_plan_machine(config, {}).rates.link_bandwidth, 25e9);
  machine = make_plan_machine(config,
                              {.vram = 6 * kGiB, .memory_bandwidth = 100e9, .link_bandwidth = 3e9});
  EXPECT_EQ(machine.device_memory, 6 * kGiB);
  EXPECT_EQ(machine.rates.memory_bandwidth, 100e9);
  EXPECT_EQ(machine.rates.link_bandwidth, 3e9);
  config.memory.device_memory = 2 * kGiB;
  EXPECT_EQ(make_plan_machine(config, {}).usable_device_bytes(), 2 * kGiB);
}

TEST(ModelShape, ActivationsAreWhatTheModelAllocates) {
  const ModelConfig config = ModelConfig::load(source_path("models/needle-3m"));
  DeviceOptions options;
  options.name = "emulated";
  const auto device = open_device(options);
  const Activations activations(*device, config, DType::kBF16, 512, 1);
  const auto used = static_cast<double>(device->memory(MemorySpace::kDevice).used_bytes);
  const auto planned = static_cast<double>(activation_bytes(model_shape(config, "needle"), 512));
  EXPECT_NEAR(planned, used, 0.001 * used);
}

}  // namespace
}  // namespace fasa
