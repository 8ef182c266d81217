// The supported contents of config.json, in older and newer forms, and the rejected ones.
#include "runtime/llm/config/model_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "runtime/base/error.h"
#include "runtime/llm/config/rope_frequencies.h"
#include "tests/llm/temp_model.h"

namespace fasa {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

nlohmann::json base() {
  return {{"model_type", "llama"},    {"vocab_size", 64},
          {"hidden_size", 32},        {"intermediate_size", 40},
          {"num_hidden_layers", 3},   {"num_attention_heads", 4},
          {"num_key_value_heads", 2}, {"max_position_embeddings", 256},
          {"eos_token_id", {3, 5}}};
}

ModelConfig parse(const nlohmann::json& changes) {
  nlohmann::json json = base();
  if (!changes.is_null()) json.update(changes);
  return ModelConfig::parse(json.dump(), "config.json");
}

std::string error_of(const nlohmann::json& changes) {
  try {
    parse(changes);
  } catch (const InputError& error) {
    return error.what();
  }
  return "no error";
}

TEST(ModelConfigTest, ReadsShapes) {
  const ModelConfig config = parse({{"dtype", "bfloat16"}});
  const Geometry geometry = config.geometry();
  geometry.validate();
  EXPECT_EQ(geometry.key_dim, 8);
  EXPECT_EQ(geometry.gqa_group(), 2);
  EXPECT_EQ(geometry.layers, 3);
  EXPECT_THAT(geometry.windows, IsEmpty());
  EXPECT_TRUE(config.is_eos(5));
  EXPECT_FALSE(config.is_eos(4));
  EXPECT_EQ(config.stored_dtype, DType::kBF16);
  EXPECT_EQ(parse({{"torch_dtype", "float16"}}).stored_dtype, DType::kF16);
  EXPECT_EQ(parse({{"head_dim", 14}}).geometry().key_dim, 14);
  EXPECT_EQ(parse({{"model_type", "qwen3"}}).head_dim, 128);
}

TEST(ModelConfigTest, Ernie45RotatesInterleavedPairs) {
  const ModelConfig config = parse({{"model_type", "ernie4_5"}, {"use_bias", true}});
  EXPECT_EQ(config.geometry().rotary_layout, RotaryLayout::kInterleaved);
  EXPECT_EQ(config.head_dim, 128);
  EXPECT_TRUE(config.tie_embeddings && config.qkv_bias && config.output_bias && config.mlp_bias);
  EXPECT_EQ(parse({}).geometry().rotary_layout, RotaryLayout::kHalf);
}

TEST(ModelConfigTest, ExpertsOfQwen) {
  const nlohmann::json qwen = {{"model_type", "qwen3_moe"},
                               {"num_experts", 128},
                               {"num_experts_per_tok", 8},
                               {"moe_intermediate_size", 24},
                               {"norm_topk_prob", true}};
  const auto with = [&](const nlohmann::json& changes) {
    nlohmann::json json = qwen;
    json.update(changes);
    return json;
  };
  const ModelConfig config = parse(qwen);
  EXPECT_EQ(config.experts.count, 128);
  EXPECT_EQ(config.experts.chosen, 8);
  EXPECT_EQ(config.experts.intermediate, 24);
  EXPECT_TRUE(config.experts.normalised);
  EXPECT_THAT(config.expert_layers, ElementsAre(true, true, true));
  EXPECT_THAT(parse(with({{"decoder_sparse_step", 2}})).expert_layers,
              ElementsAre(false, true, false));
  EXPECT_THAT(parse(with({{"mlp_only_layers", {2}}})).expert_layers,
              ElementsAre(true, true, false));
  // Three layers of 128 experts and a router; a token reads 8 experts.
  EXPECT_EQ(config.mlp_parameters(), 3 * 32 * (128 * 3 * 24 + 128));
  EXPECT_EQ(config.read_mlp_parameters(), 3 * 32 * (8 * 3 * 24 + 128));
  EXPECT_THAT(error_of(with({{"mlp_only_layers", {3}}})), HasSubstr("layer numbers from 0 to 2"));
  EXPECT_THAT(error_of(with({{"mlp_only_layers", -1}})), HasSubstr("a list of layer numbers"));
  EXPECT_THAT(error_of(with({{"num_experts_per_tok", 129}})), HasSubstr("128"));
  EXPECT_THAT(error_of(with({{"num_experts", nullptr}})), HasSubstr("num_experts"));
}

TEST(ModelConfigTest, GptOss) {
  const nlohmann::json gpt = {
      {"model_type", "gpt_oss"}, {"num_local_experts", 32}, {"num_experts_per_tok", 4}};
  const auto with = [&](const char* key, const nlohmann::json& value) {
    nlohmann::json json = gpt;
    json[key] = value;
    return json;
  };
  const ModelConfig config = parse(gpt);
  EXPECT_TRUE(config.has_sinks());
  EXPECT_TRUE(config.qkv_bias && config.output_bias && config.experts.normalised);
  EXPECT_EQ(config.experts.intermediate, config.intermediate);
  EXPECT_THAT(config.windows, ElementsAre(128, 0, 128));
  EXPECT_EQ(config.experts.clamped.value().alpha, 1.702f);
  EXPECT_EQ(config.experts.clamped.value().limit, 7);
  EXPECT_EQ(parse(with("swiglu_limit", 1.5)).experts.clamped.value().limit, 1.5f);
  EXPECT_THAT(error_of(with("swiglu_limit", -1)), HasSubstr("swiglu_limit"));
  EXPECT_THAT(error_of(with("num_experts_per_tok", 33)), HasSubstr("32"));
  EXPECT_FALSE(parse({}).has_sinks());
}

TEST(ModelConfigTest, ExpertsOfDeepSeek) {
  const nlohmann::json deepseek = {{"model_type", "deepseek_v2"},
                                   {"kv_lora_rank", 18},
                                   {"qk_rope_head_dim", 8},
                                   {"qk_nope_head_dim", 6},
                                   {"v_head_dim", 6},
                                   {"first_k_dense_replace", 1},
                                   {"n_routed_experts", 6},
                                   {"n_shared_experts", 2},
                                   {"num_experts_per_tok", 2},
                                   {"moe_intermediate_size", 24},
                                   {"topk_method", "group_limited_greedy"},
                                   {"n_group", 3},
                                   {"topk_group", 2}};
  const auto with = [&](const char* key, const nlohmann::json& value) {
    nlohmann::json json = deepseek;
    json[key] = value;
    return json;
  };
  const ModelConfig config = parse(deepseek);
  EXPECT_THAT(config.expert_layers, ElementsAre(false, true, true));
  EXPECT_EQ(config.experts.shared_intermediate, 48);
  EXPECT_EQ(config.experts.groups, 3);
  EXPECT_EQ(config.experts.chosen_groups, 2);
  EXPECT_EQ(parse(with("first_k_dense_replace", 3)).experts.count, 0);
  EXPECT_THAT(error_of(with("n_group", 4)), HasSubstr("a divisor of n_routed_experts = 6"));
  EXPECT_THAT(error_of(with("num_experts_per_tok", 5)), HasSubstr("at most 4"));
  EXPECT_THAT(error_of(with("topk_method", "noaux_tc")), HasSubstr("group_limited_greedy"));
  EXPECT_THAT(error_of(with("scoring_func", "sigmoid")), HasSubstr("softmax"));
}

TEST(ModelConfigTest, OldAndNewRopeFormsAreOne) {
  const ModelConfig older =
      parse({{"rope_theta", 5e5}, {"rope_scaling", {{"type", "linear"}, {"factor", 4}}}});
  const ModelConfig newer =
      parse({{"rope_parameters", {{"rope_type", "linear"}, {"factor", 4.0}, {"rope_theta", 5e5}}}});
  EXPECT_EQ(older.rope.theta, 5e5);
  EXPECT_EQ(newer.rope.theta, 5e5);
  EXPECT_EQ(older.rope.scaling_text(), newer.rope.scaling_text());
  const std::vector<float> frequencies = make_rotations(older).at(0).frequencies;
  EXPECT_EQ(frequencies, make_rotations(newer).at(0).frequencies);
  EXPECT_FLOAT_EQ(frequencies[0], 0.25f);
  EXPECT_EQ(parse({{"rope_scaling", nullptr}}).rope.scaling_text(), "");
}

TEST(ModelConfigTest, ScalingExtendsTheContext) {
  const auto positions = [](const nlohmann::json& scaling, int64_t said = 256) {
    return parse({{"rope_scaling", scaling}, {"max_position_embeddings", said}}).max_positions;
  };
  const nlohmann::json yarn = {
      {"type", "yarn"}, {"factor", 4.0}, {"original_max_position_embeddings", 256}};
  EXPECT_EQ(positions(yarn), 1024);
  EXPECT_EQ(positions(yarn, 2048), 2048);  // said, and more
  EXPECT_EQ(positions({{"type", "linear"}, {"factor", 4.0}}), 1024);
  EXPECT_EQ(positions({{"rope_type", "llama3"},
                       {"factor", 8.0},
                       {"low_freq_factor", 1.0},
                       {"high_freq_factor", 4.0},
                       {"original_max_position_embeddings", 128}}),
            256);
  // Gemma's config has the extended context.
  EXPECT_EQ(parse({{"model_type", "gemma3_text"},
                   {"sliding_window", 20},
                   {"rope_scaling", {{"rope_type", "linear"}, {"factor", 8.0}}}})
                .max_positions,
            256);
}

TEST(ModelConfigTest, DefaultsOfTheConfigClasses) {
  const auto first_upload = [](const nlohmann::json& changes) {
    nlohmann::json text = {{"model_type", "gemma3_text"},
                           {"hidden_size", 2560},
                           {"intermediate_size", 10240},
                           {"num_hidden_layers", 34},
                           {"sliding_window", 1024},
                           {"rope_scaling", {{"factor", 8.0}, {"rope_type", "linear"}}}};
    text.update(changes);
    const nlohmann::json whole = {{"model_type", "gemma3"}, {"text_config", text}};
    return ModelConfig::parse(whole.dump(), "config.json");
  };
  const ModelConfig config = first_upload(nlohmann::json::object());
  EXPECT_EQ(config.vocab_size, 262208);
  EXPECT_EQ(config.query_heads, 8);
  EXPECT_EQ(config.kv_heads, 4);
  EXPECT_EQ(config.head_dim, 256);
  EXPECT_EQ(config.max_positions, 131072);
  EXPECT_EQ(first_upload({{"num_attention_heads", 16}}).query_heads, 16);
  EXPECT_THAT(error_of({{"vocab_size", nullptr}}), HasSubstr("vocab_size"));  // of a llama
}

TEST(ModelConfigTest, WindowsByLetters) {
  const nlohmann::json exaone = {{"model_type", "exaone4"},
                                 {"num_hidden_layers", 6},
                                 {"sliding_window", 64},
                                 {"sliding_window_pattern", "LLG"}};
  EXPECT_THAT(parse(exaone).windows, ElementsAre(64, 64, 0, 64, 64, 0));
  nlohmann::json changed = exaone;
  changed["sliding_window_pattern"] = nullptr;
  EXPECT_THAT(parse(changed).windows, ElementsAre(64, 64, 64, 0, 64, 64));
  changed["sliding_window_pattern"] = "LXG";
  EXPECT_THAT(error_of(changed), AllOf(HasSubstr("sliding_window_pattern"), HasSubstr("L and G")));
}

TEST(ModelConfigTest, WindowsOfEachFamily) {
  EXPECT_THAT(parse({{"sliding_window", 9}}).windows, IsEmpty());
  const nlohmann::json mistral = {{"model_type", "mistral"}, {"sliding_window", 9}};
  EXPECT_THAT(parse(mistral).windows, ElementsAre(9, 9, 9));
  EXPECT_THAT(parse({{"model_type", "mistral"}}).windows, ElementsAre(4096, 4096, 4096));
  EXPECT_THAT(parse({{"model_type", "mistral"}, {"sliding_window", nullptr}}).windows, IsEmpty());
  nlohmann::json qwen = {{"model_type", "qwen2"}, {"sliding_window", 9}, {"max_window_layers", 1}};
  EXPECT_THAT(parse(qwen).windows, IsEmpty());
  qwen["use_sliding_window"] = true;
  EXPECT_THAT(parse(qwen).windows, ElementsAre(0, 9, 9));
  qwen["layer_types"] = {"sliding_attention", "full_attention", "full_attention"};
  EXPECT_THAT(parse(qwen).windows, ElementsAre(9, 0, 0));
  qwen["layer_types"] = {"sliding_attention"};
  EXPECT_THAT(error_of(qwen), HasSubstr("layer_types"));
  const nlohmann::json phi = {{"model_type", "phi3"}, {"sliding_window", 9}};
  EXPECT_THAT(parse(phi).windows, ElementsAre(9, 9, 9));
  EXPECT_THAT(parse({{"model_type", "phi3"}}).windows, IsEmpty());
  nlohmann::json gemma = {
      {"model_type", "gemma3_text"}, {"sliding_window", 9}, {"sliding_window_pattern", 2}};
  EXPECT_THAT(parse(gemma).windows, ElementsAre(9, 0, 9));
  gemma["layer_types"] = {"full_attention", "sliding_attention", "full_attention"};
  EXPECT_THAT(parse(gemma).windows, ElementsAre(0, 9, 0));
}

std::vector<int> rotations(const ModelConfig& config) {
  std::vector<int> all;
  for (int layer = 0; layer < config.layers; ++layer) all.push_back(config.rotation(layer));
  return all;
}

TEST(ModelConfigTest, LayersWithoutRotation) {
  nlohmann::json smol = {{"model_type", "smollm3"}, {"sliding_window", 9}};
  EXPECT_THAT(rotations(parse({})), ElementsAre(0, 0, 0));
  EXPECT_THAT(rotations(parse(smol)), ElementsAre(0, 0, 0));  // every fourth layer is not rotated
  smol["no_rope_layer_interval"] = 2;
  EXPECT_THAT(rotations(parse(smol)), ElementsAre(0, kUnrotated, 0));
  EXPECT_THAT(parse(smol).windows, IsEmpty());
  smol["use_sliding_window"] = true;
  EXPECT_THAT(parse(smol).windows, ElementsAre(0, 9, 0));
  smol["no_rope_layers"] = {0, 1, 0};
  EXPECT_THAT(rotations(parse(smol)), ElementsAre(kUnrotated, 0, kUnrotated));
  EXPECT_EQ(parse(smol).rope.theta, 2e6);
  for (const nlohmann::json& list : {nlohmann::json{1, 1}, nlohmann::json{1, 2, 0},
                                     nlohmann::json("1"), nlohmann::json{1, true, "0"}}) {
    smol["no_rope_layers"] = list;
    EXPECT_THAT(error_of(smol), HasSubstr("no_rope_layers")) << list;
  }
}

TEST(ModelConfigTest, LayersWithAWindowHaveTheirOwnRotation) {
  const ModelConfig newer =
      parse({{"model_type", "gemma3_text"},
             {"sliding_window", 9},
             {"sliding_window_pattern", 3},
             {"rope_parameters",
              {{"full_attention", {{"rope_type", "linear"}, {"factor", 8}, {"rope_theta", 1e5}}},
               {"sliding_attention", {{"rope_theta", 500}}}}}});
  const ModelConfig older = parse({{"model_type", "gemma3_text"},
                                   {"sliding_window", 9},
                                   {"sliding_window_pattern", 3},
                                   {"rope_theta", 1e5},
                                   {"rope_local_base_freq", 500},
                                   {"rope_scaling", {{"rope_type", "linear"}, {"factor", 8}}}});
  for (const ModelConfig& config : {newer, older}) {
    EXPECT_THAT(rotations(config), ElementsAre(1, 1, 0));
    EXPECT_EQ(config.rope.theta, 1e5);
    EXPECT_EQ(config.rope.scaling_text(), "linear factor=8");
    EXPECT_EQ(config.local_rope->theta, 500);
    EXPECT_EQ(config.local_rope->scaling_text(), "");
  }
  const ModelConfig unsaid = parse({{"model_type", "gemma3_text"}});
  EXPECT_THAT(unsaid.windows, ElementsAre(4096, 4096, 4096));
  EXPECT_EQ(unsaid.rope.theta, 1e6);
  EXPECT_EQ(unsaid.local_rope->theta, 1e4);
  // The layer type matters where there is no window, too.
  const ModelConfig none = parse({{"model_type", "gemma3_text"}, {"sliding_window", nullptr}});
  EXPECT_THAT(none.windows, IsEmpty());
  EXPECT_THAT(rotations(none), ElementsAre(1, 1, 1));
}

TEST(ModelConfigTest, FactorsOfEachFamily) {
  const ModelConfig plain = parse({{"embedding_multiplier", 9}});
  EXPECT_EQ(plain.embedding_scale, 1);
  EXPECT_FLOAT_EQ(plain.geometry().scale, 1 / std::sqrt(8.0f));
  const ModelConfig granite = parse({{"model_type", "granite"},
                                     {"embedding_multiplier", 12},
                                     {"residual_multiplier", 0.25},
                                     {"attention_multiplier", 0.0625},
                                     {"logits_scaling", 8}});
  EXPECT_EQ(granite.embedding_scale, 12);
  EXPECT_EQ(granite.residual_scale, 0.25);
  EXPECT_EQ(granite.logits_scale, 0.125);
  EXPECT_EQ(granite.geometry().scale, 0.0625);
  EXPECT_EQ(parse({{"model_type", "granite"}}).geometry().scale, 1);
  const ModelConfig gemma = parse({{"model_type", "gemma3_text"}, {"query_pre_attn_scalar", 64}});
  EXPECT_FLOAT_EQ(gemma.embedding_scale, std::sqrt(32.0f));
  EXPECT_EQ(gemma.geometry().scale, 0.125);
  EXPECT_EQ(parse({{"model_type", "gemma3_text"}}).geometry().scale, 0.0625);
}

TEST(ModelConfigTest, LongRopeTakesWhatItsContextNeeds) {
  const auto phi = [](int64_t original) {
    return nlohmann::json{
        {"model_type", "phi3"},
        {"original_max_position_embeddings", original},
        {"partial_rotary_factor", 0.5},
        {"rope_scaling", {{"type", "su"}, {"short_factor", {1, 2}}, {"long_factor", {4, 8}}}}};
  };
  const ModelConfig longer = parse(phi(64));
  const Rotation rotation = make_rotations(longer).at(0);
  EXPECT_THAT(rotation.frequencies, ElementsAre(0.25f, 0.01f / 8));
  EXPECT_DOUBLE_EQ(rotation.factor, std::sqrt(1 + std::log(4.0) / std::log(64.0)));
  const Rotation own = make_rotations(parse(phi(256))).at(0);
  EXPECT_THAT(own.frequencies, ElementsAre(1.0f, 0.01f / 2));
  EXPECT_EQ(own.factor, 1);
  // Contexts that end within the original one take the short set; the model is the same.
  for (const auto& [context, is_short] : {std::pair{64, true}, {65, false}, {0, false}}) {
    nlohmann::json json = base();
    json.update(phi(64));
    const ModelConfig served = ModelConfig::parse(json.dump(), "config.json", context);
    EXPECT_EQ(make_rotations(served).at(0).frequencies[1], is_short ? 0.01f / 2 : 0.01f / 8);
    EXPECT_EQ(served.rope.scaling_text(), longer.rope.scaling_text());
  }
  nlohmann::json named = phi(64);
  named["rope_scaling"]["type"] = "longrope";
  EXPECT_EQ(parse(named).rope.scaling_text(), longer.rope.scaling_text());
  EXPECT_NE(parse(phi(256)).rope.scaling_text(), longer.rope.scaling_text());
  for (const nlohmann::json& list :
       {nlohmann::json{1}, nlohmann::json{1, 2, 3}, nlohmann::json{1, "2"}, nlohmann::json{1, 0},
        nlohmann::json(4), nlohmann::json(nullptr)}) {
    nlohmann::json wrong = phi(64);
    wrong["rope_scaling"]["short_factor"] = list;
    EXPECT_THAT(error_of(wrong), AllOf(HasSubstr("rope_scaling"), HasSubstr("_factor"))) << list;
    wrong["rope_scaling"]["long_factor"] = list;
    EXPECT_THAT(error_of(wrong), AllOf(HasSubstr("rope_scaling"), HasSubstr("_factor"))) << list;
  }
}

TEST(ModelConfigTest, SoftCapsOfGemma2) {
  nlohmann::json gemma = {{"model_type", "gemma2"}, {"query_pre_attn_scalar", 64}};
  const ModelConfig unsaid = parse(gemma);
  EXPECT_EQ(unsaid.geometry().score_cap, 50);
  EXPECT_EQ(unsaid.geometry().scale, 0.125);
  EXPECT_EQ(unsaid.logits_cap, 30);
  EXPECT_THAT(unsaid.windows, ElementsAre(4096, 0, 4096));
  gemma["attn_logit_softcapping"] = 20;
  gemma["final_logit_softcapping"] = nullptr;
  EXPECT_EQ(parse(gemma).score_cap, 20);
  EXPECT_EQ(parse(gemma).logits_cap, 0);
  for (const char* const key : {"attn_logit_softcapping", "final_logit_softcapping"}) {
    for (const double wrong : {0.0, -30.0, 1e9}) {
      EXPECT_THAT(error_of({{"model_type", "gemma2"}, {key, wrong}}), HasSubstr(key));
    }
    EXPECT_THAT(error_of({{"model_type", "gemma2"}, {key, "30"}}), HasSubstr(key));
  }
  EXPECT_THAT(error_of({{"model_type", "gemma2"}, {"use_bidirectional_attention", true}}),
              HasSubstr("use_bidirectional_attention"));
}

nlohmann::json gemma4(const nlohmann::json& changes) {
  nlohmann::json json = {
      {"model_type", "gemma4_text"},
      {"layer_types", {"sliding_attention", "full_attention", "sliding_attention"}},
      {"sliding_window", 9},
      {"head_dim", 12},
      {"hidden_size_per_layer_input", 0}};
  json.update(changes);
  return json;
}

TEST(ModelConfigTest, HeadsOfGemma4DifferByTheTypeOfTheLayer) {
  const ModelConfig usual = parse(gemma4({{"num_global_key_value_heads", 1}}));
  EXPECT_THAT(usual.windows, ElementsAre(9, 0, 0));  // the last layer has none
  EXPECT_EQ(usual.heads(0), (HeadShape{2, 12, 12, 12}));
  EXPECT_EQ(usual.heads(1), (HeadShape{2, 512, 512, 512}));  // keys are not values
  EXPECT_EQ(usual.geometry().scale, 1);
  usual.geometry().validate();
  const ModelConfig older = parse(gemma4(
      {{"global_head_dim", 20}, {"num_global_key_value_heads", 1}, {"attention_k_eq_v", true}}));
  EXPECT_EQ(older.heads(2), (HeadShape{1, 20, 20, 20}));
  EXPECT_TRUE(older.takes_keys_as_values(1));
  EXPECT_FALSE(older.takes_keys_as_values(0));
  EXPECT_EQ(older.geometry().only_layer(0).key_dim, 12);
  const nlohmann::json wide = {{"head_dim", 20}, {"num_key_value_heads", 1}};
  const ModelConfig newer = parse(gemma4({{"per_layer_config", {{"1", wide}, {"2", wide}}}}));
  EXPECT_EQ(newer.heads(1), older.heads(1));
  EXPECT_EQ(newer.heads(0), older.heads(0));
  EXPECT_FALSE(parse(gemma4({{"global_head_dim", 12}})).geometry().has_window_heads());
}

TEST(ModelConfigTest, LastLayersOfGemma4ShareKeysAndValues) {
  nlohmann::json shared = gemma4({{"num_hidden_layers", 5},
                                  {"num_kv_shared_layers", 2},
                                  {"use_double_wide_mlp", true},
                                  {"sliding_window_pattern", 2}});
  shared.erase("layer_types");
  const ModelConfig config = parse(shared);
  EXPECT_THAT(config.windows, ElementsAre(9, 0, 9, 0, 0));
  EXPECT_EQ(config.kv_layer(2), 2);
  EXPECT_EQ(config.kv_layer(3), 1);
  EXPECT_EQ(config.kv_layer(4), 1);
  EXPECT_EQ(config.mlp_width(2), 40);
  EXPECT_EQ(config.mlp_width(3), 80);
  shared["num_kv_shared_layers"] = 4;
  EXPECT_THAT(error_of(shared), HasSubstr("num_kv_shared_layers"));
}

TEST(ModelConfigTest, FewPairsOfGemma4Turn) {
  const ModelConfig config = parse(gemma4({{"global_head_dim", 20}}));
  const std::vector<Rotation> rotations = make_rotations(config);
  EXPECT_EQ(rotations[1].frequencies.size(), 6u);
  ASSERT_EQ(rotations[0].frequencies.size(), 10u);
  EXPECT_FLOAT_EQ(rotations[0].frequencies[1], std::pow(1e6f, -0.1f));
  EXPECT_EQ(rotations[0].frequencies[2], 0);
}

TEST(ModelConfigTest, WhatGemma4CannotDoIsNamed) {
  EXPECT_THAT(error_of(gemma4({{"use_bidirectional_attention", "all"}})),
              HasSubstr("use_bidirectional_attention"));
  EXPECT_EQ(error_of(gemma4({{"use_bidirectional_attention", "vision"}})), "no error");
  const nlohmann::json differing = {{"1", {{"head_dim", 20}}}};
  EXPECT_THAT(error_of(gemma4({{"per_layer_config", differing}})), HasSubstr("per_layer_config"));
  EXPECT_THAT(error_of(gemma4({{"global_head_dim", 21}})), HasSubstr("global_head_dim"));
  EXPECT_THAT(error_of(gemma4({{"attention_k_eq_v", true}, {"num_global_key_value_heads", 3}})),
              HasSubstr("num_global_key_value_heads"));
  EXPECT_THAT(error_of(gemma4({{"sliding_window", nullptr}})), HasSubstr("sliding_window"));
}

nlohmann::json qwen35(const nlohmann::json& changes) {
  nlohmann::json config = {{"model_type", "qwen3_5_text"},
                           {"vocab_size", 60},
                           {"hidden_size", 24},
                           {"intermediate_size", 40},
                           {"num_hidden_layers", 6},
                           {"num_attention_heads", 4},
                           {"num_key_value_heads", 2},
                           {"head_dim", 16},
                           {"max_position_embeddings", 256},
                           {"linear_num_key_heads", 2},
                           {"linear_num_value_heads", 6}};
  config.update(changes);
  return config;
}

TEST(ModelConfigTest, LayersWithLinearAttentionHaveNoRows) {
  // Every fourth layer has attention.
  const ModelConfig config = parse(qwen35(nlohmann::json::object()));
  EXPECT_EQ(config.linear.layers, 5);
  EXPECT_EQ(config.linear.taps, 4);
  EXPECT_EQ(config.linear.channels(), 2 * 2 * 128 + 6 * 128);
  EXPECT_EQ(config.geometry().layers, 1);
  EXPECT_EQ(config.geometry().linear, config.linear);
  EXPECT_EQ(config.rotary_dims, 4);  // a quarter of a head
  EXPECT_EQ(config.attention_layer(0), 3);
  EXPECT_EQ(config.attention_index(5), 1);
  const ModelConfig closer = parse(qwen35({{"full_attention_interval", 2}}));
  EXPECT_EQ(closer.geometry().layers, 3);
  EXPECT_EQ(closer.attention_layer(2), 5);
}

TEST(ModelConfigTest, WhatLinearAttentionCannotDoIsNamed) {
  EXPECT_THAT(error_of(qwen35({{"linear_num_value_heads", 5}})),
              HasSubstr("linear_num_value_heads"));
  EXPECT_THAT(error_of(qwen35({{"linear_conv_kernel_dim", 9}})),
              HasSubstr("linear_conv_kernel_dim"));
  EXPECT_THAT(error_of(qwen35({{"attention_bias", true}})), HasSubstr("attention_bias"));
  EXPECT_THAT(error_of(qwen35({{"hidden_act", "gelu"}})), HasSubstr("hidden_act"));
  EXPECT_THAT(error_of(qwen35({{"full_attention_interval", 7}})), HasSubstr("full_attention"));
}

TEST(ModelConfigTest, WhatGemmaCannotDoIsNamed) {
  for (const char* const key : {"attn_logit_softcapping", "final_logit_softcapping"}) {
    EXPECT_THAT(error_of({{"model_type", "gemma3_text"}, {key, 30.0}}), HasSubstr(key));
  }
  EXPECT_THAT(error_of({{"model_type", "gemma3_text"}, {"use_bidirectional_attention", true}}),
              HasSubstr("use_bidirectional_attention"));
}

TEST(ModelConfigTest, TheTextPartOfAModelWithImages) {
  const auto wrapped = [](nlohmann::json changes, nlohmann::json text = {}) {
    nlohmann::json part = {{"vocab_size", 64},
                           {"hidden_size", 32},
                           {"intermediate_size", 40},
                           {"num_hidden_layers", 2},
                           {"num_attention_heads", 4},
                           {"max_position_embeddings", 256},
                           {"eos_token_id", 7},
                           {"dtype", "float32"},
                           {"tie_word_embeddings", false},
                           {"final_logit_softcapping", 3.0}};
    if (!text.is_null()) part.update(text);
    nlohmann::json whole = {{"model_type", "gemma3"},
                            {"dtype", "float16"},
                            {"vision_config", {{"hidden_size", 9}}},
                            {"text_config", part}};
    if (!changes.is_null()) whole.update(changes);
    return whole.dump();
  };
  const auto read = [](const std::string& json) { return ModelConfig::parse(json, "config.json"); };
  const ModelConfig gemma = read(wrapped({{"eos_token_id", {1, 106}}}));
  EXPECT_EQ(gemma.model_type, "gemma3_text");
  EXPECT_EQ(gemma.hidden, 32);
  EXPECT_TRUE(gemma.tie_embeddings);  // what the part says does not count
  EXPECT_EQ(gemma.eos_ids, (std::vector<int32_t>{1, 106}));
  EXPECT_EQ(gemma.stored_dtype, DType::kF16);
  EXPECT_EQ(read(wrapped({})).eos_ids, std::vector<int32_t>{7});
  EXPECT_FALSE(read(wrapped({{"tie_word_embeddings", false}})).tie_embeddings);
  EXPECT_EQ(read(wrapped({{"model_type", "mistral3"}})).model_type, "mistral");
  const auto error = [&](const std::string& json) -> std::string {
    try {
      read(json);
    } catch (const InputError& thrown) {
      return thrown.what();
    }
    return "no error";
  };
  EXPECT_THAT(error(R"({"model_type": "gemma3"})"),
              HasSubstr("config.json: text_config = missing; allowed: an object"));
  EXPECT_THAT(error(wrapped({{"text_config", 3}})), HasSubstr("text_config = 3"));
  EXPECT_THAT(error(wrapped({}, {{"hidden_size", -1}})), HasSubstr("text_config.hidden_size = -1"));
  EXPECT_THAT(error(wrapped({}, {{"model_type", "gpt2"}})),
              HasSubstr("text_config.model_type = \"gpt2\""));
  EXPECT_THAT(error(wrapped({}, {{"model_type", "ministral3"}, {"num_key_value_heads", 2}})),
              HasSubstr("rope_parameters"));
  EXPECT_THAT(error(wrapped({}, {{"rope_parameters", {{"rope_type", "spiral"}}}})),
              HasSubstr("text_config.rope_parameters.rope_type = \"spiral\""));
}

TEST(ModelConfigTest, BiasesAndNormsOfEachFamily) {
  EXPECT_FALSE(parse({}).qkv_bias);
  EXPECT_TRUE(parse({{"attention_bias", true}}).output_bias);
  EXPECT_TRUE(parse({{"model_type", "qwen2"}}).qkv_bias);
  EXPECT_FALSE(parse({{"model_type", "qwen2"}}).output_bias);
  EXPECT_EQ(parse({{"model_type", "qwen3"}}).head_norm, HeadNorm::kShared);
  EXPECT_EQ(parse({}).head_norm, HeadNorm::kNone);
  EXPECT_FALSE(parse({{"model_type", "mistral"}, {"attention_bias", true}}).qkv_bias);
}

TEST(ModelConfigTest, PartOfAHeadIsRotated) {
  const auto rotary = [](nlohmann::json changes) {
    changes["hidden_size"] = 64;
    return parse(changes).geometry().rotary_dims;  // of 16
  };
  EXPECT_EQ(rotary({}), 16);
  EXPECT_EQ(rotary({{"model_type", "gpt_neox"}}), 4);
  EXPECT_EQ(rotary({{"model_type", "gpt_neox"}, {"rotary_pct", 0.5}}), 8);
  EXPECT_EQ(rotary({{"model_type", "stablelm"}}), 4);
  EXPECT_EQ(rotary({{"model_type", "phi"}}), 8);
  EXPECT_EQ(rotary({{"model_type", "phi"}, {"partial_rotary_factor", 0.4}}), 6);
  EXPECT_EQ(rotary({{"model_type", "phi"}, {"rope_parameters", {{"partial_rotary_factor", 1}}}}),
            16);
  EXPECT_EQ(parse({{"model_type", "gpt_neox"}, {"rotary_emb_base", 500}}).rope.theta, 500);
  EXPECT_THAT(error_of({{"model_type", "phi"}, {"partial_rotary_factor", 0.45}}),
              HasSubstr("head_dim = missing"));
  EXPECT_THAT(error_of({{"model_type", "phi"}, {"partial_rotary_factor", 1.5}}),
              HasSubstr("partial_rotary_factor = 1.5"));
}

TEST(ModelConfigTest, AlibiInsteadOfRotation) {
  nlohmann::json bloom = {{"model_type", "bloom"},
                          {"vocab_size", 64},
                          {"hidden_size", 48},
                          {"n_layer", 2},
                          {"n_head", 6}};
  const auto parse_text = [](const nlohmann::json& json) {
    return ModelConfig::parse(json.dump(), "config.json");
  };
  const Geometry geometry = parse_text(bloom).geometry();
  geometry.validate();
  EXPECT_EQ(geometry.rotary_dims, 0);
  EXPECT_EQ(geometry.ranked_chunks().size(), 8u);
  EXPECT_THAT(geometry.alibi_slopes,
              ElementsAre(0.25f, 0.0625f, 0.015625f, 0.00390625f, 0.5f, 0.125f));
  EXPECT_TRUE(parse_text(bloom).tie_embeddings);
  bloom.erase("n_head");
  bloom.erase("hidden_size");
  bloom.update({{"num_attention_heads", 4}, {"n_embed", 32}});
  EXPECT_EQ(parse_text(bloom).geometry().key_dim, 8);
  bloom["apply_residual_connection_post_layernorm"] = true;
  EXPECT_THROW(parse_text(bloom), InputError);

  nlohmann::json mpt = {{"model_type", "mpt"}, {"vocab_size", 64}, {"d_model", 48},
                        {"n_layers", 2},       {"n_heads", 6},     {"max_seq_len", 512}};
  EXPECT_THAT(parse_text(mpt).geometry().alibi_slopes,
              ElementsAre(0.25f, 0.0625f, 0.015625f, 0.00390625f, 0.5f, 0.125f));
  mpt["attn_config"] = {{"alibi_bias_max", 4}};
  mpt["n_heads"] = 4;
  EXPECT_THAT(parse_text(mpt).geometry().alibi_slopes, ElementsAre(0.5f, 0.25f, 0.125f, 0.0625f));
  mpt["attn_config"] = {{"alibi", false}};
  EXPECT_THROW(parse_text(mpt), InputError);
  mpt["attn_config"] = {{"clip_qkv", 6}};
  EXPECT_THROW(parse_text(mpt), InputError);
}

TEST(ModelConfigTest, OrderOfALayersParts) {
  EXPECT_FALSE(parse({}).parallel);
  EXPECT_TRUE(parse({{"model_type", "gpt_neox"}}).parallel);
  EXPECT_FALSE(parse({{"model_type", "gpt_neox"}}).one_norm);
  EXPECT_FALSE(parse({{"model_type", "gpt_neox"}, {"use_parallel_residual", false}}).parallel);
  EXPECT_FALSE(parse({{"model_type", "stablelm"}}).one_norm);
  EXPECT_TRUE(parse({{"model_type", "stablelm"}, {"use_parallel_residual", true}}).one_norm);
  EXPECT_TRUE(parse({{"model_type", "phi"}}).one_norm);
}

TEST(ModelConfigTest, ErrorsNameKeyValueAndWhatIsAllowed) {
  EXPECT_THAT(error_of({{"model_type", "mamba"}}),
              AllOf(HasSubstr("config.json: model_type = \"mamba\""),
                    HasSubstr("llama, mistral, mixtral, qwen2, qwen3, qwen3_moe")));
  EXPECT_THAT(error_of({{"model_type", nullptr}}), HasSubstr("model_type"));
  EXPECT_THAT(error_of({{"hidden_size", 0}}), HasSubstr("hidden_size = 0"));
  EXPECT_THAT(error_of({{"hidden_size", "32"}}), HasSubstr("hidden_size = \"32\""));
  EXPECT_THAT(error_of({{"hidden_size", 1e300}}), HasSubstr("hidden_size"));
  EXPECT_THAT(error_of({{"vocab_size", UINT64_MAX}}), HasSubstr("vocab_size"));
  EXPECT_THAT(error_of({{"num_key_value_heads", 3}}), HasSubstr("num_key_value_heads = 3"));
  EXPECT_THAT(error_of({{"head_dim", 7}}), HasSubstr("head_dim = 7"));
  EXPECT_THAT(error_of({{"num_attention_heads", 6}}), HasSubstr("head_dim = missing"));
  EXPECT_THAT(error_of({{"hidden_act", "relu"}}), HasSubstr("hidden_act"));
  EXPECT_THAT(error_of({{"partial_rotary_factor", 0.5}}), HasSubstr("partial_rotary_factor"));
  EXPECT_THAT(error_of({{"eos_token_id", "end"}}), HasSubstr("eos_token_id"));
  EXPECT_THAT(error_of({{"max_position_embeddings", nullptr}}), HasSubstr("max_position"));
  EXPECT_THAT(error_of({{"quantization_config", {{"bits", 4}}}}), HasSubstr("quantization"));
  EXPECT_THAT(error_of({{"rope_scaling", {{"type", "dynamic"}}}}),
              AllOf(HasSubstr("rope_scaling.type = \"dynamic\""), HasSubstr("yarn")));
  EXPECT_THAT(error_of({{"rope_scaling", {{"rope_type", "llama3"}, {"factor", 8}}}}),
              HasSubstr("rope_scaling.low_freq_factor = missing"));
  EXPECT_THAT(error_of({{"rope_parameters", 3}}), HasSubstr("rope_parameters"));
}

TEST(ModelConfigTest, GenerationConfigBringsItsOwnEndOfSequence) {
  const llm_test::TempDir dir;
  EXPECT_THROW(ModelConfig::load(dir.path()), InputError);
  EXPECT_THROW(ModelConfig::load(dir.path() + "/none"), InputError);
  dir.write("config.json", base().dump());
  EXPECT_THAT(ModelConfig::load(dir.path()).eos_ids, ElementsAre(3, 5));
  dir.write("generation_config.json", R"({"eos_token_id": null})");
  EXPECT_THAT(ModelConfig::load(dir.path()).eos_ids, ElementsAre(3, 5));
  dir.write("generation_config.json", R"({"eos_token_id": 7})");
  EXPECT_THAT(ModelConfig::load(dir.path()).eos_ids, ElementsAre(7));
  dir.write("generation_config.json", R"({"eos_token_id": [7, null, 8.0, "x", 1e12]})");
  EXPECT_THAT(ModelConfig::load(dir.path()).eos_ids, ElementsAre(7, 8));
  dir.write("generation_config.json", "{");
  EXPECT_THAT(ModelConfig::load(dir.path()).eos_ids, ElementsAre(3, 5));
  EXPECT_THAT(parse({{"eos_token_id", {3.0, nullptr}}}).eos_ids, ElementsAre(3));
}

}  // namespace
}  // namespace fasa
