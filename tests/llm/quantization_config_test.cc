// quantization_config: supported contents, rejected ones by name, and the modules that a pattern
// matches.
#include "runtime/llm/weights/quantization_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "runtime/base/error.h"

namespace fasa {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

QuantizationConfig parse(const json& quantised) {
  return QuantizationConfig::parse({{"quantization_config", quantised}}, "config.json").value();
}

std::string error_of(const json& quantised) {
  try {
    parse(quantised);
  } catch (const InputError& error) {
    return error.what();
  }
  return "no error";
}

json compressed(const json& weights) {
  return {{"quant_method", "compressed-tensors"},
          {"format", "pack-quantized"},
          {"config_groups", {{"group_0", {{"targets", {"Linear"}}, {"weights", weights}}}}}};
}

TEST(QuantizationConfigTest, IsMissingFromModelsThatAreNotQuantised) {
  EXPECT_FALSE(QuantizationConfig::parse(json::object(), "config.json"));
  EXPECT_FALSE(QuantizationConfig::parse({{"quantization_config", nullptr}}, "config.json"));
}

TEST(QuantizationConfigTest, NamesTheLayout) {
  EXPECT_EQ(parse({{"quant_method", "awq"}, {"bits", 4}}).layout, QuantLayout::kAwq);
  EXPECT_EQ(parse({{"quant_method", "gptq"}, {"bits", 4}}).layout, QuantLayout::kGptqV1);
  EXPECT_EQ(parse({{"quant_method", "gptq"}, {"checkpoint_format", "gptq_v2"}}).layout,
            QuantLayout::kGptqV2);
  EXPECT_EQ(parse({{"quant_method", "bitsandbytes"}, {"load_in_4bit", true}}).layout,
            QuantLayout::kBitsAndBytes);
  EXPECT_EQ(parse({{"quant_method", "mxfp4"}}).layout, QuantLayout::kMxfp4);
  EXPECT_EQ(parse(compressed({{"num_bits", 4}})).layout, QuantLayout::kPackQuantized);
  EXPECT_EQ(parse({{"quant_method", "fp8"}}).layout, QuantLayout::kFp8);
  EXPECT_EQ(parse({{"quant_method", "fbgemm_fp8"}}).layout, QuantLayout::kFp8);
}

TEST(QuantizationConfigTest, Float8HasBlocksAndNoRoundedActivations) {
  using Blocks = std::array<int64_t, 2>;
  const json fp8 = {{"quant_method", "fp8"}, {"activation_scheme", "static"}};
  const auto with = [&](const json& blocks) {
    json all = fp8;
    all["weight_block_size"] = blocks;
    return all;
  };
  EXPECT_EQ(parse(with(nullptr)).fp8_blocks, (Blocks{128, 128}));
  EXPECT_EQ(parse(with({64, 256})).fp8_blocks, (Blocks{64, 256}));
  for (const json& wrong : {json{128}, json{0, 128}, json{128, 40}, json{128.5, 128}, json("x")}) {
    EXPECT_THAT(error_of(with(wrong)), HasSubstr("weight_block_size"));
  }
  json of_floats = compressed({{"num_bits", 8}, {"type", "float"}});
  of_floats["format"] = "float-quantized";
  of_floats["config_groups"]["group_0"]["input_activations"] = {{"num_bits", 8}};
  EXPECT_EQ(parse(of_floats).layout, QuantLayout::kFp8);
  of_floats["config_groups"]["group_0"]["weights"]["num_bits"] = 4;
  EXPECT_THAT(error_of(of_floats), HasSubstr("num_bits"));
}

TEST(QuantizationConfigTest, RefusesWhatIsNotReadByName) {
  EXPECT_THAT(error_of({{"quant_method", "fp9"}}), HasSubstr("quant_method"));
  EXPECT_THAT(error_of({{"quant_method", "fp8"}, {"fmt", "e5m2"}}), HasSubstr("fmt"));
  EXPECT_THAT(error_of({{"quant_method", "awq"}, {"version", "marlin"}}), HasSubstr("version"));
  EXPECT_THAT(error_of({{"quant_method", "gptq"}, {"bits", 3}}), HasSubstr("bits"));
  EXPECT_THAT(error_of({{"quant_method", "gptq"}, {"checkpoint_format", "marlin"}}),
              HasSubstr("checkpoint_format"));
  EXPECT_THAT(error_of({{"quant_method", "bitsandbytes"}, {"load_in_8bit", true}}),
              HasSubstr("load_in_4bit"));
  EXPECT_THAT(error_of(compressed({{"num_bits", 3}})), HasSubstr("num_bits"));
  EXPECT_THAT(error_of(compressed({{"num_bits", 8}, {"type", "float"}})), HasSubstr("type"));
  json activations = compressed({{"num_bits", 4}});
  activations["config_groups"]["group_0"]["input_activations"] = {{"num_bits", 8}};
  EXPECT_THAT(error_of(activations), HasSubstr("input_activations"));
  EXPECT_THAT(error_of({{"quant_method", "awq"}, {"modules_to_not_convert", {"re:("}}}),
              HasSubstr("modules_to_not_convert"));
}

TEST(QuantizationConfigTest, PatternsMeanNamesPartsOfNamesOrExpressionsFromTheBeginning) {
  const QuantizationConfig config = parse(
      {{"quant_method", "awq"},
       {"modules_to_not_convert", {"lm_head", "layers.3.mlp", "re:.*\\.q_proj$", "re:norm"}}});
  EXPECT_TRUE(config.ignores("lm_head"));
  EXPECT_TRUE(config.ignores("model.layers.3.mlp.up_proj"));
  EXPECT_FALSE(config.ignores("model.layers.33.mlp.up_proj"));
  EXPECT_TRUE(config.ignores("model.layers.0.self_attn.q_proj"));
  EXPECT_FALSE(config.ignores("model.layers.0.self_attn.q_proj_2"));
  EXPECT_FALSE(config.ignores("model.norm"));
}

TEST(QuantizationConfigTest, ANamedTargetComesBeforeAKindOfModule) {
  json quantised = compressed({{"num_bits", 4}});
  quantised["config_groups"]["group_1"] = {{"targets", {"re:.*down_proj"}},
                                           {"weights", {{"num_bits", 8}, {"symmetric", false}}}};
  const QuantizationConfig config = parse(quantised);
  EXPECT_EQ(config.group_of("model.layers.0.mlp.up_proj")->bits, 4);
  EXPECT_EQ(config.group_of("model.layers.0.mlp.down_proj")->bits, 8);
  EXPECT_FALSE(config.group_of("model.layers.0.mlp.down_proj")->symmetric);
}

}  // namespace
}  // namespace fasa
