// Sampling options from generation_config.json, and flags that override them.
#include "runtime/llm/generation_defaults.h"

#include <gtest/gtest.h>

#include "runtime/base/error.h"

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

TEST(GenerationDefaultsTest, WhatIsImpossibleIsRefused) {
  for (const char* json :
       {R"({"do_sample": 1})", R"({"do_sample": true, "temperature": -1})",
        R"({"do_sample": true, "top_p": 0})", R"({"do_sample": true, "top_k": 1.5})",
        R"({"repetition_penalty": 0})", "[]", "{"}) {
    EXPECT_THROW(parse(json), InputError) << json;
  }
}

}  // namespace
}  // namespace fasa
