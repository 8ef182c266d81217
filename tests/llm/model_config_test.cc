// What config.json may say, in its older and newer forms, and what it may not.
#include "runtime/llm/model_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "runtime/base/error.h"
#include "runtime/llm/rope_frequencies.h"
#include "tests/llm/temp_model.h"

namespace fasa {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

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
  EXPECT_EQ(geometry.group(), 2);
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

TEST(ModelConfigTest, OldAndNewRopeFormsAreOne) {
  const ModelConfig older =
      parse({{"rope_theta", 5e5}, {"rope_scaling", {{"type", "linear"}, {"factor", 4}}}});
  const ModelConfig newer =
      parse({{"rope_parameters", {{"rope_type", "linear"}, {"factor", 4.0}, {"rope_theta", 5e5}}}});
  EXPECT_EQ(older.rope.theta, 5e5);
  EXPECT_EQ(newer.rope.theta, 5e5);
  EXPECT_EQ(older.rope.scaling_text(), newer.rope.scaling_text());
  EXPECT_EQ(rope_frequencies(older), rope_frequencies(newer));
  EXPECT_FLOAT_EQ(rope_frequencies(older)[0], 0.25f);
  EXPECT_EQ(parse({{"rope_scaling", nullptr}}).rope.scaling_text(), "");
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
                    HasSubstr("llama, mistral, qwen2, qwen3, ernie4_5, gpt_neox")));
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
  dir.write("generation_config.json", "{");
  EXPECT_THROW(ModelConfig::load(dir.path()), InputError);
}

}  // namespace
}  // namespace fasa
