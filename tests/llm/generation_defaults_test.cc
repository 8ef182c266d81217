// Sampling options from generation_config.json, and flags that override them.
#include "runtime/llm/generation/generation_defaults.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <limits>

namespace fasa {
namespace {

GenerationDefaults parse(const char* json) { return GenerationDefaults::parse(json, "g.json"); }

TEST(GenerationDefaultsTest, SamplingCountsWhereTheFileSamples) {
  const GenerationDefaults greedy = parse(R"({"temperature": 0.6, "top_p": 0.9})");
  EXPECT_FALSE(greedy.temperature);
  EXPECT_FALSE(greedy.top_p);
  const GenerationDefaults sampling = parse(
      R"({"do_sample": true, "temperature": 0.6, "top_p": 0.95, "top_k": 20, "min_p": 0.05,
          "repetition_penalty": 1.1, "eos_token_id": [1, 2]})");
  EXPECT_FLOAT_EQ(*sampling.temperature, 0.6f);
  EXPECT_EQ(*sampling.top_k, 20);
  EXPECT_FLOAT_EQ(*sampling.min_p, 0.05f);
  EXPECT_FLOAT_EQ(*parse(R"({"do_sample": true})").temperature, 1);
  EXPECT_FLOAT_EQ(*parse(R"({"repetition_penalty": 1.2})").repetition_penalty, 1.2f);
}

TEST(GenerationDefaultsTest, FlagsWin) {
  const GenerationDefaults defaults =
      parse(R"({"do_sample": true, "temperature": 0.6, "top_k": 20, "repetition_penalty": 1.1})");
  SamplingChoice flags;
  flags.temperature = 0;
  flags.frequency_penalty = 0.5f;
  const Sampling sampling = flags.over(defaults);
  EXPECT_EQ(sampling.temperature, 0);
  EXPECT_EQ(sampling.top_k, 20);
  EXPECT_EQ(sampling.top_p, 1);
  EXPECT_FLOAT_EQ(sampling.repetition_penalty, 1.1f);
  EXPECT_FLOAT_EQ(sampling.frequency_penalty, 0.5f);
  EXPECT_EQ(SamplingChoice().over({}).temperature, 0);
}

// "null": absent.
std::string value_of(const char* key, const char* value) {
  const std::string json = fmt::format(R"({{"do_sample": true, "{}": {}}})", key, value);
  const Sampling sampling = SamplingChoice().over(parse(json.c_str()));
  sampling.validate();
  if (key == std::string("top_k")) return fmt::format("{}", sampling.top_k);
  if (key == std::string("top_p")) return fmt::format("{}", sampling.top_p);
  if (key == std::string("min_p")) return fmt::format("{}", sampling.min_p);
  if (key == std::string("temperature")) return fmt::format("{}", sampling.temperature);
  return fmt::format("{}", sampling.repetition_penalty);
}

TEST(GenerationDefaultsTest, OddValuesAreNoLimitOrTheNumberThatTheyMean) {
  for (const char* none : {"-1", "4294967296", "1.5", "true", "NaN", "Infinity", "[1]", "\"x\""}) {
    EXPECT_EQ(value_of("top_k", none), "0") << none;
  }
  EXPECT_EQ(value_of("top_k", "1.0"), "1");
  EXPECT_EQ(value_of("top_k", "\"50\""), "50");
  for (const char* none : {"0", "-1", "1.0000001", "NaN", "-Infinity", "null"}) {
    EXPECT_EQ(value_of("top_p", none), "1") << none;
  }
  for (const char* none : {"-1", "2", "\"a\""}) EXPECT_EQ(value_of("min_p", none), "0") << none;
  for (const char* none : {"-1", "NaN", "null", "1e9"}) {
    EXPECT_EQ(value_of("temperature", none), "1") << none;
  }
  EXPECT_EQ(value_of("temperature", "\"0.5\""), "0.5");
  for (const char* none : {"0", "-2", "Infinity"}) {
    EXPECT_EQ(value_of("repetition_penalty", none), "1") << none;
  }
}

TEST(GenerationDefaultsTest, AFaultNeverKeepsAModelFromOpening) {
  for (const char* json : {"", "[]", "{", "7", R"({"do_sample": "perhaps"})", R"({"a": NaN)"}) {
    EXPECT_EQ(SamplingChoice().over(parse(json)).temperature, 0) << json;
  }
  const GenerationDefaults around =
      parse(R"({"a": "NaN \" NaN", "b": [Infinity, -Infinity, NaN], "do_sample": 1, "top_k": 5})");
  EXPECT_EQ(around.top_k, 5);
}

TEST(GenerationDefaultsTest, SuppressedTokensAreNeverSampled) {
  const GenerationDefaults defaults = parse(R"({"suppress_tokens": [7, null, -1, 9.0, "x"]})");
  EXPECT_EQ(defaults.suppressed, (std::vector<int32_t>{7, 9}));
  const Sampling sampling = SamplingChoice().over(defaults);
  ASSERT_EQ(sampling.logit_bias.size(), 2u);
  EXPECT_EQ(sampling.logit_bias[0].first, 7);
  EXPECT_EQ(sampling.logit_bias[0].second, -std::numeric_limits<float>::infinity());
}

}  // namespace
}  // namespace fasa
