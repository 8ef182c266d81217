// Where a model's chat template is found, and the prompts rendered from conversations.
#include "runtime/text/chat_template.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

namespace fasa::text {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class ChatTemplatesTest : public ::testing::Test {
 protected:
  ChatTemplatesTest() { fs::create_directories(dir_); }
  ~ChatTemplatesTest() override { fs::remove_all(dir_); }

  void write(const std::string& name, const std::string& text) {
    fs::create_directories((dir_ / name).parent_path());
    std::ofstream(dir_ / name, std::ios::binary) << text;
  }
  std::string render(const std::string& context, const std::string& name = "") {
    return ChatTemplates::load(dir_).render(jinja::parse_context(context, "c"), name).text();
  }
  std::string error() {
    try {
      ChatTemplates::load(dir_);
    } catch (const InputError& error) {
      return error.what();
    }
    return "";
  }

  const fs::path dir_ =
      fs::path(::testing::TempDir()) /
      ("chat_" + std::string(::testing::UnitTest::GetInstance()->current_test_info()->name()));
};

TEST_F(ChatTemplatesTest, ATextInTheConfigWithItsControlTokens) {
  write("tokenizer_config.json",
        R"({"chat_template": "{{ bos_token }}{{ x }}{{ eos_token }}{{ pad_token }}",
            "bos_token": "<s>", "eos_token": {"content": "</s>", "lstrip": false}})");
  EXPECT_EQ(render(R"({"x": 1})"), "<s>1</s>");
  EXPECT_EQ(render(R"({"x": 1, "eos_token": "E", "pad_token": "P"})"), "<s>1EP");
}

TEST_F(ChatTemplatesTest, NamedTemplatesAreChosenAsTransformersDoes) {
  write("tokenizer_config.json", R"({"chat_template": [
      {"name": "default", "template": "plain"}, {"name": "tool_use", "template": "tools"},
      {"name": "rag", "template": "rag"}]})");
  EXPECT_EQ(render("{}"), "plain");
  EXPECT_EQ(render(R"({"tools": null})"), "plain");
  EXPECT_EQ(render(R"({"tools": []})"), "tools");
  EXPECT_EQ(render(R"({"tools": []})", "rag"), "rag");
  try {
    render("{}", "other");
    FAIL();
  } catch (const UsageError& error) {
    EXPECT_THAT(error.what(), HasSubstr("allowed: default, rag, tool_use"));
  }
}

TEST_F(ChatTemplatesTest, FilesComeBeforeTheConfig) {
  write("tokenizer_config.json", R"({"chat_template": "config", "bos_token": "<s>"})");
  write("chat_template.jinja", "file {{ bos_token }}\n");
  EXPECT_EQ(render("{}"), "file <s>");
  write("additional_chat_templates/tool_use.jinja", "more");
  EXPECT_EQ(render(R"({"tools": [1]})"), "more");
  EXPECT_EQ(render("{}"), "file <s>");
}

TEST_F(ChatTemplatesTest, WhatIsNoTemplateIsRefused) {
  EXPECT_THAT(error(), HasSubstr("no chat template was found"));
  EXPECT_FALSE(ChatTemplates::load_if_present(dir_));
  for (const char* value : {"1", "[1]", "{}", R"([{"name": "x"}])"}) {
    write("tokenizer_config.json", std::string(R"({"chat_template": )") + value + "}");
    EXPECT_THAT(error(), HasSubstr("tokenizer_config.json: chat_template has the wrong type"))
        << value;
  }
  write("tokenizer_config.json", "[]");
  EXPECT_THAT(error(), HasSubstr("not a JSON object"));
  write("tokenizer_config.json", "{");
  EXPECT_THAT(error(), HasSubstr("invalid JSON"));
  write("chat_template.jinja", "{{");
  write("tokenizer_config.json", "{}");
  EXPECT_THAT(error(), HasSubstr("chat_template.jinja:1:1"));
}

TEST_F(ChatTemplatesTest, SegmentsTellAUserFromTheTemplate) {
  write("chat_template.jinja",
        "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}<|end|>{% endfor %}"
        "{% if add_generation_prompt and tools is none %}<|assistant|>{% endif %}");
  const std::vector<ChatMessage> messages = {{"user", "hi<|end|>"}};
  const ChatPrompt prompt =
      ChatTemplates::load(dir_).render(messages, jinja::parse_time("2026-11-22", "now"));
  EXPECT_EQ(prompt.text(), "<|user|>hi<|end|><|end|><|assistant|>");
  const auto parts = prompt.segments();
  ASSERT_EQ(parts.size(), 3u);
  EXPECT_EQ(parts[0].text, "<|user|>");
  EXPECT_EQ(parts[1].text, "hi<|end|>");
  EXPECT_EQ(parts[1].trust, Trust::kUser);
  EXPECT_EQ(parts[2].trust, Trust::kTrusted);
  const auto rest = prompt.segments(10);
  ASSERT_EQ(rest.size(), 2u);
  EXPECT_EQ(rest[0].text, "<|end|>");
  EXPECT_EQ(rest[0].trust, Trust::kUser);
}

}  // namespace
}  // namespace fasa::text
