// Which format a template writes, and how it wants the history.
#include "runtime/text/answer/format_choice.h"

#include <gtest/gtest.h>

#include "runtime/io/input_file.h"
#include "tests/support/source_path.h"

namespace fasa::text {
namespace {

using Json = nlohmann::ordered_json;

ChatTemplates templates_of(const std::string& source, const Json& more = Json::object()) {
  Json config = {{"chat_template", source}};
  config.update(more);
  return *ChatTemplates::parse(config.dump(), "test");
}

std::string golden(const std::string& name) {
  return read_file(source_path("tests/template/golden/" + name + ".jinja"));
}

TEST(FormatChoice, OfPublishedTemplates) {
  const std::vector<std::pair<std::string, std::string>> expected = {
      {"cohere2", "actions"},    {"exaone4", "hermes"},    {"gemma4", "gemma-pairs"},
      {"glm4", "glm-names"},     {"gpt_oss", "channels"},  {"ministral3", "mistral-arguments"},
      {"olmo3", "python-calls"}, {"qwen3_5", "qwen-tags"}, {"seed_oss", "seed-tags"},
  };
  for (const auto& [name, format] : expected) {
    const ChosenFormat chosen = choose_answer_format(templates_of(golden(name)));
    EXPECT_EQ(chosen.format.name, format) << name;
    EXPECT_EQ(chosen.source, "rendered") << name;
  }
  EXPECT_TRUE(choose_answer_format(templates_of(golden("gemma3"))).is_generic());
}

TEST(FormatChoice, HistoryOfPublishedTemplates) {
  const HistoryForm qwen = choose_answer_format(templates_of(golden("qwen3_5"))).format.history;
  EXPECT_FALSE(qwen.system_anywhere);
  EXPECT_TRUE(qwen.shows_reasoning);
  EXPECT_FALSE(qwen.keeps_reasoning);
  EXPECT_FALSE(qwen.one_call);
  const HistoryForm gpt = choose_answer_format(templates_of(golden("gpt_oss"))).format.history;
  EXPECT_TRUE(gpt.one_call);
  EXPECT_FALSE(gpt.arguments_as_text);
  const ChosenFormat seed = choose_answer_format(templates_of(golden("seed_oss")));
  EXPECT_EQ(seed.format.thoughts[0].open, "<seed:think>");
  EXPECT_TRUE(seed.format.history.keeps_reasoning);
}

// Templates of calls in few words; `%` stands for the arguments.
std::string calls_template(const std::string& call, const std::string& checks = "") {
  return "{% if tools %}{{ tools | tojson }}{% endif %}{% for m in messages %}" + checks +
         "{{ '<' ~ m.role ~ '>' ~ (m.content or '') }}{% for c in m.tool_calls or [] %}" + call +
         "{% endfor %}{% endfor %}";
}

TEST(FormatChoice, ArgumentsAsText) {
  const ChosenFormat chosen = choose_answer_format(templates_of(
      calls_template("{{ '<tool_call>{\"name\": \"' + c.function.name + '\", \"arguments\": ' + "
                     "c.function.arguments + '}</tool_call>' }}")));
  EXPECT_EQ(chosen.format.name, "hermes");
  EXPECT_TRUE(chosen.format.history.arguments_as_text);
}

TEST(FormatChoice, IdsOfNineLetters) {
  const ChosenFormat chosen = choose_answer_format(templates_of(calls_template(
      "{% if c.id | length != 9 %}{{ raise_exception('ids') }}{% endif %}"
      "{{ '[TOOL_CALLS][' if loop.first }}{{ c.function | tojson }}{{ ']' if loop.last else ', ' "
      "}}")));
  EXPECT_EQ(chosen.format.name, "mistral-list");
  EXPECT_TRUE(chosen.format.history.nine_letter_ids);
}

TEST(FormatChoice, ContentOrThoughtBesideCalls) {
  const ChosenFormat chosen = choose_answer_format(templates_of(calls_template(
      "<tool_call>{{ c.function | tojson }}</tool_call>",
      "{% if m.tool_calls and m.content and m.thinking %}{{ raise_exception('both') }}"
      "{% endif %}")));
  EXPECT_TRUE(chosen.format.history.text_or_thought);
}

TEST(FormatChoice, MarksInTheSource) {
  const ChosenFormat described = choose_answer_format(
      templates_of("{{ tools }}Answer by <tool_call>{...}</tool_call>{{ messages[0].content }}"));
  EXPECT_EQ(described.format.name, "hermes");
  EXPECT_EQ(described.source, "described");
  EXPECT_EQ(
      choose_answer_format(templates_of("{{ tools }} dictionary of argument name")).format.name,
      "llama-json");
  const ChosenFormat unknown = choose_answer_format(templates_of("{{ tools }}{{ messages[0] }}"));
  EXPECT_EQ(unknown.source, "unknown");
  EXPECT_FALSE(unknown.has_calls());
}

TEST(FormatChoice, TemplatesThatFail) {
  for (const char* source :
       {"{{ raise_exception('never') }}", "{{ messages[99].content }}",
        "{% for a in range(9999) %}{% for b in range(9999) %}x{% endfor %}{% endfor %}", ""}) {
    EXPECT_TRUE(choose_answer_format(templates_of(source)).is_generic()) << source;
  }
}

TEST(FormatChoice, ResponseTemplates) {
  const auto of = [&](const char* fields) {
    return choose_answer_format(templates_of(
        "{{ messages[0].content }}",
        {{"response_template",
          {{"version", 1}, {"start_anchor", "<a>"}, {"fields", Json::parse(fields)}}}}));
  };
  const ChosenFormat gemma = of(R"json({
      "thinking": {"open": "<|channel>thought\n", "close": "<channel|>"}, "content": {},
      "tool_calls": {"open_pattern": "<\\|tool_call>call:(?P<name>\\w+)", "close": "<tool_call|>",
                     "repeats": true, "content": "json",
                     "content_args": {
    "unquoted_keys" : true, "string_delims" : ["<|\"|>"]}
}
})json");
  EXPECT_EQ(gemma.source, "response_template");
  EXPECT_EQ(gemma.format.name, "gemma-pairs");
  EXPECT_EQ(of(R"({"tool_calls": {"open": "<tool_call>", "close": "</tool_call>",
                                  "content": "xml-inline"}})")
                .format.name,
            "qwen-tags");
  const ChosenFormat own = of(R"({"thinking": {"open": "<hm>", "close": "</hm>"},
      "tool_calls": {"open": "<do>", "close": "</do>", "content": "json"}})");
  EXPECT_EQ(own.format.calls.open, "<do>\n");
  EXPECT_EQ(own.format.thoughts[0].open, "<hm>");
  EXPECT_NE(of(R"({"content": {"open": "x"}})").source, "response_template");
}

}  // namespace
}  // namespace fasa::text
