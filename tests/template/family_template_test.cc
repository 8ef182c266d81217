// Chat templates with the constructs of model families against transformers' apply_chat_template
// (golden/make_golden.py).
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "runtime/base/error.h"
#include "runtime/text/template/template.h"
#include "tests/support/source_path.h"

namespace fasa::jinja {
namespace {

using nlohmann::ordered_json;

std::string read(const std::string& name) {
  std::ifstream file(source_path("tests/template/golden/" + name), std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

class FamilyTemplateTest : public ::testing::TestWithParam<const char*> {
 protected:
  // Nullopt: the template, or an operation in it, raises an error.
  static std::optional<std::string> render(const Template& chat, ordered_json variables) {
    for (const char* name : {"tools", "documents"}) {
      if (!variables.contains(name)) variables[name] = nullptr;
    }
    if (!variables.contains("add_generation_prompt")) variables["add_generation_prompt"] = false;
    variables["bos_token"] = "<s>";
    variables["eos_token"] = "</s>";
    Context context = parse_context(variables.dump(), "case");
    context.now = parse_time("2026-11-22T12:00:00", "now");
    try {
      return chat.render(context).bytes();
    } catch (const InputError&) {
      return std::nullopt;
    }
  }
};

TEST_P(FamilyTemplateTest, RendersAsTransformersDoes) {
  const auto golden = ordered_json::parse(read("golden.json"));
  const std::string file = std::string(GetParam()) + ".jinja";
  const Template chat = Template::parse(read(file), file);
  for (const auto& [name, expected] : golden["rendered"][GetParam()].items()) {
    const auto text = render(chat, golden["cases"][name]);
    ASSERT_EQ(text.has_value(), !expected.is_null()) << name;
    if (text) {
      EXPECT_EQ(*text, expected.get<std::string>()) << name;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Families, FamilyTemplateTest,
                         ::testing::Values("cohere2", "exaone4", "gemma3", "gemma4", "glm4",
                                           "gpt_oss", "ministral3", "olmo3", "qwen3_5", "seed_oss"),
                         [](const auto& test) { return std::string(test.param); });

}  // namespace
}  // namespace fasa::jinja
