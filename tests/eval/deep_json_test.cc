// A million nested lists, in every kind of JSON file that is read: an error with the location and
// the limit, and no stack overflow.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/calibrate/fc_map.h"
#include "runtime/eval/json_lines.h"
#include "runtime/eval/result_log.h"
#include "runtime/eval/tasks/needle_template.h"
#include "runtime/llm/config/model_config.h"
#include "runtime/llm/weights/safetensors.h"
#include "runtime/text/tokenizer.h"
#include "tests/llm/temp_model.h"

namespace fasa {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr size_t kDeep = 1'000'000;

std::string error_of(const std::function<void()>& read) {
  try {
    read();
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

TEST(DeepJson, IsRefusedByEveryReader) {
  const std::string deep = std::string(kDeep, '[') + std::string(kDeep, ']');
  const std::string field = "{\"model_type\": " + deep + "}";
  const llm_test::TempDir dir;
  const auto written = [&](const std::string& name, const std::string& text) {
    dir.write(name, text);
    return dir.path() + "/" + name;
  };
  std::filesystem::create_directory(dir.path() + "/tensors");
  std::filesystem::create_directory(dir.path() + "/alone");
  written("tensors/model.safetensors.index.json", "{\"weight_map\": " + deep + "}");
  written("alone/model.safetensors", llm_test::safetensors_bytes(field, ""));
  const std::string setup = "{\"fasa_eval\": 1, \"setup\": {}}\n";
  const std::vector<std::pair<const char*, std::function<void()>>> readers = {
      {"config", [&] { ModelConfig::parse(field, "f"); }},
      {"index", [&] { WeightFiles(dir.path() + "/tensors"); }},
      {"header", [&] { WeightFiles(dir.path() + "/alone"); }},
      {"map", [&] { FcMap::parse("{\"schema\": " + deep + "}", "f"); }},
      {"template", [&] { NeedleTemplate::parse("{\"fact\": " + deep + "}", "f"); }},
      {"results", [&] { read_results(written("r.jsonl", setup + "{\"id\": " + deep + "}\n")); }}};
  for (const auto& [name, read] : readers) {
    EXPECT_THAT(error_of(read), AllOf(HasSubstr("byte"), HasSubstr("65 deep; allowed: 64")))
        << name;
  }
  // The tokenizer's file is large and parsed in a stream.
  EXPECT_THAT(error_of([&] { text::Tokenizer::parse("{\"model\": " + deep + "}", "", "f"); }),
              HasSubstr("nested too deep; allowed: 64 levels"));
  // A data line that nests too deep is skipped and reported.
  const std::string data = "{\"x\": 1}\n{\"x\": " + deep + "}\n";
  const JsonLines lines = read_json_lines(written("d.jsonl", data), {"x"});
  EXPECT_EQ(lines.lines.size(), 1u);
  ASSERT_EQ(lines.problems.size(), 1u);
  EXPECT_THAT(lines.problems[0], AllOf(HasSubstr("d.jsonl:2: byte"), HasSubstr("left out")));
}

}  // namespace
}  // namespace fasa
