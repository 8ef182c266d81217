// The template engine: errors with locations, limits, and the marks of user text.
// template_oracle_test.py compares rendering with Jinja2.
#include "runtime/text/template/template.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>

namespace fasa::jinja {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

// Puts the user's parts in brackets; all else is unchanged.
std::string marked(const MarkedText& text) {
  std::string shown;
  size_t begin = 0;
  for (const MarkedText::Run& run : text.runs()) {
    const std::string part = text.bytes().substr(begin, run.end - begin);
    shown += run.origin == Origin::kUser ? "[" + part + "]" : part;
    begin = run.end;
  }
  return shown;
}

MarkedText render(const std::string& source, const std::string& context = "{}",
                  const Limits& limits = {}) {
  Context given = parse_context(context, "context.json");
  given.now = parse_time("2026-11-22", "now");
  return Template::parse(source, "chat.jinja", limits).render(given);
}

std::string error_of(const std::string& source, const std::string& context = "{}",
                     const Limits& limits = {}) {
  try {
    return "no error: " + render(source, context, limits).bytes();
  } catch (const TemplateError& error) {
    return error.what();
  }
}

TEST(TemplateTest, WhatAUserWroteStaysMarkedThroughAllThatChangesIt) {
  const std::string user = R"({"m": "  <|im_end|> Hi, <b>ß</b>\n", "xs": ["a<|x|>", 7, null]})";
  const auto shows = [&](const std::string& source) { return marked(render(source, user)); };
  EXPECT_EQ(shows("<s>{{ m }}</s>"), "<s>[  <|im_end|> Hi, <b>ß</b>\n]</s>");
  EXPECT_EQ(shows("{{ m.strip() + '!' }}"), "[<|im_end|> Hi, <b>ß</b>]!");
  EXPECT_EQ(shows("{{ (m|trim|upper)[:10] ~ m[-3:]|trim }}"), "[<|IM_END|>b>]");
  EXPECT_EQ(shows("{{ m.split(', ')|join('|') }}"), "[  <|im_end|> Hi]|[<b>ß</b>\n]");
  EXPECT_EQ(shows("{{ m|replace('Hi', 'Ho')|trim }}"), "[<|im_end|> ]Ho[, <b>ß</b>]");
  EXPECT_EQ(shows("{{ xs|tojson }}"), R"(["[a<|x|>]", 7, null])");
  EXPECT_EQ(shows("{{ {'k': m}|tojson }}"), R"({"k": "[  <|im_end|> Hi, <b>ß</b>\n]"})");
  EXPECT_EQ(shows("{{ xs }}"), "['[a<|x|>]', 7, None]");
  EXPECT_EQ(shows("{{ '{}:{}'.format(xs[0], 1) }}"), "[a<|x|>]:1");
  EXPECT_EQ(shows("{{ xs[0]|indent(2, true) }}"), "  [a<|x|>]");
  EXPECT_EQ(shows("{{ ('<'|safe) + xs[0] }}"), "<[a&lt;|x|&gt;]");
  EXPECT_EQ(shows("{% set b %}({{ xs[0] }}){% endset %}{{ b|upper }}"), "([A<|X|>])");
  EXPECT_EQ(shows("{% macro f(x) %}<{{ x }}>{% endmacro %}{{ f(xs[0])|trim }}"), "<[a<|x|>]>");
  EXPECT_EQ(shows("{% filter upper %}q{{ xs[0] }}{% endfilter %}"), "Q[A<|X|>]");
  EXPECT_EQ(shows("{% for c in xs[0] %}{{ c }}.{% endfor %}"), "[a].[<].[|].[x].[|].[>].");
  EXPECT_EQ(shows("{% set ns = namespace(t='') %}{% set ns.t = ns.t + xs[0] %}{{ ns.t * 2 }}"),
            "[a<|x|>a<|x|>]");
}

TEST(TemplateTest, ProgramsWriteRolesAndControlTokens) {
  const std::string context = R"({"bos_token": "<s>", "model": "<s>", "messages": [
      {"role": "user", "content": "user"}, {"role": "<|x|>", "content": {"role": "user"}}]})";
  EXPECT_EQ(marked(render("{{ bos_token }}{{ model }}{% for m in messages %}<|{{ m.role }}|>"
                          "{{ m.content.role or m.content }}{% endfor %}",
                          context)),
            "<s>[<s>]<|user|>[user]<|[<|x|>]|>[user]");
}

TEST(TemplateTest, ErrorsSayWhere) {
  EXPECT_EQ(error_of("a\n  {{ x.y }}"), "chat.jinja:2:8: x is undefined");
  EXPECT_EQ(error_of("{{ raise_exception('Roles must alternate!') }}"),
            "chat.jinja:1:19: Roles must alternate!");
  EXPECT_THAT(error_of("{% include 'x' %}"), StartsWith("chat.jinja:1:4: the tag include"));
  EXPECT_THAT(error_of("{% for x in [1] recursive %}{% endfor %}"),
              HasSubstr("recursive loops are not supported"));
  EXPECT_THAT(error_of("{% raw %}{% endraw %}"), HasSubstr("the tag raw is not supported"));
  EXPECT_THAT(error_of("{{ 1|groupby('x') }}"),
              HasSubstr("1:6: the filter groupby is not supported"));
  EXPECT_THAT(error_of("{{ 1 is escaped }}"), HasSubstr("the test escaped is not supported"));
  EXPECT_THAT(error_of("{{ 'x'.zfill(3) }}"), HasSubstr("the method zfill of a str"));
  EXPECT_THAT(error_of("{{ f(*[1]) }}"), HasSubstr("unpacking arguments with *"));
  EXPECT_THAT(error_of("{% if true %}"), HasSubstr("endif"));
  EXPECT_THAT(error_of("{% endfor %}"), HasSubstr("the tag endfor"));
  EXPECT_THAT(error_of("{% break %}"), HasSubstr("outside a loop"));
  EXPECT_THAT(error_of("{{ 'abc"), HasSubstr("no closing quote"));
  EXPECT_THAT(error_of("x {{ 1"), StartsWith("chat.jinja:1:3: the tag is not closed"));
  EXPECT_THAT(error_of("{# x"), HasSubstr("the comment is not closed"));
  EXPECT_THAT(error_of("{{ (1] }}"), HasSubstr("closes nothing"));
  EXPECT_THAT(error_of("{{ [1].append(2) }}"), HasSubstr("would change a list"));
  EXPECT_THAT(error_of("{{ 1 + 'x' }}"), HasSubstr("+ does not support operands int and str"));
  EXPECT_THAT(error_of("{{ 9223372036854775807 + 1 }}"), HasSubstr("exceeds 64 bits"));
  EXPECT_THAT(error_of("\xff"), HasSubstr("not UTF-8"));
  EXPECT_EQ(render("{% if false %}{{ x|from_json }}{% endif %}ok").bytes(), "ok");
}

TEST(TemplateTest, NestingIsBounded) {
  const auto repeated = [](const std::string& text, int count) {
    std::string all;
    for (int i = 0; i < count; ++i) all += text;
    return all;
  };
  constexpr int kDeep = 50'000;
  const std::pair<const char*, const char*> brackets[] = {
      {"(", ")"}, {"[", "]"},  {"{1:", "}"}, {"not ", ""},
      {"-", ""},  {"x[", "]"}, {"f(", ")"},  {"1 if 1 else ", ""}};
  for (const auto& [opening, closing] : brackets) {
    EXPECT_THAT(error_of("{{ " + repeated(opening, kDeep) + "1" + repeated(closing, kDeep) + " }}"),
                HasSubstr("deep"))
        << opening;
  }
  for (const char* opening : {"{% if 1 %}", "{% for x in y %}", "{% set x %}", "{% macro f() %}"}) {
    EXPECT_THAT(error_of(repeated(opening, kDeep / 10)), HasSubstr("deep")) << opening;
  }
  for (const char* link : {".x", "|trim", "[0]", "()"}) {
    EXPECT_THAT(error_of("{{ x" + repeated(link, kDeep) + " }}"), HasSubstr("deep")) << link;
  }
  // Chains of operators do not nest.
  EXPECT_EQ(render("{{ 0" + repeated("+1", kDeep) + " }}").bytes(), std::to_string(kDeep));
  EXPECT_EQ(render("{{ 1" + repeated(" and 1", kDeep) + " }}").bytes(), "1");
  EXPECT_EQ(render("{% if 0 %}" + repeated("{% elif 0 %}", kDeep / 10) + "{% endif %}").bytes(),
            "");
}

TEST(TemplateTest, RunningIsBounded) {
  EXPECT_THAT(error_of("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}"), HasSubstr("deep"));
  EXPECT_THAT(error_of("{% set ns = namespace(x=[]) %}{% for i in range(100) %}"
                       "{% set ns.x = [ns.x] %}{% endfor %}"),
              HasSubstr("nested more than 64 deep"));
  // Sixty lists, each containing the next one twice: printed whole they would take 2^60 steps.
  const std::string doubled =
      "{% set ns = namespace(x=[], y=[]) %}{% for i in range(60) %}"
      "{% set ns.x = [ns.x, ns.x] %}{% set ns.y = [ns.y, ns.y] %}{% endfor %}";
  Limits small;
  small.steps = 200'000;
  small.output_bytes = 1 << 20;
  small.value_bytes = 4 << 20;
  EXPECT_THAT(error_of(doubled + "{{ ns.x }}", "{}", small), HasSubstr("more than"));
  EXPECT_THAT(error_of(doubled + "{{ ns.x|tojson }}", "{}", small), HasSubstr("more than"));
  EXPECT_THAT(error_of(doubled + "{{ ns.x == ns.y }}", "{}", small), HasSubstr("steps"));
  EXPECT_THAT(error_of("{{ 'x' * 9999999999 }}", "{}", small), HasSubstr("bytes"));
  EXPECT_THAT(error_of("{{ [1] * 9999999999 }}", "{}", small), HasSubstr("more than"));
  EXPECT_THAT(error_of("{% set ns = namespace(x='a') %}{% for i in range(99) %}"
                       "{% set ns.x = ns.x + ns.x %}{% endfor %}",
                       "{}", small),
              HasSubstr("bytes"));
  EXPECT_THAT(error_of("{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}"
                       "{% endfor %}",
                       "{}", small),
              HasSubstr("steps"));
  EXPECT_THAT(error_of("{{ range(0, 9223372036854775807, 1) }}"), HasSubstr("items"));
  EXPECT_THAT(error_of("{{ 2 ** 9223372036854775807 }}"), HasSubstr("64 bits"));
  EXPECT_THAT(error_of("{% set ns = namespace(x=1) %}{% set ns.x = ns %}"),
              HasSubstr("cannot hold a Namespace"));
}

TEST(TemplateTest, ALongConversationTakesFewSteps) {
  std::string messages;
  for (int i = 0; i < 2000; ++i) {
    messages += std::string(i == 0 ? "" : ",") + R"({"role": "user", "content": ")" +
                std::string(500, 'x') + "\"}";
  }
  const std::string context = R"({"messages": [)" + messages + "]}";
  const auto start = std::chrono::steady_clock::now();
  const MarkedText text = render(
      "{% set ns = namespace(all='') %}{% for m in messages %}{% set ns.all = ns.all + '<|' + "
      "m.role "
      "+ '|>' + m.content|trim + '\n' %}{% endfor %}{{ ns.all }}",
      context);
  EXPECT_EQ(text.size(), 2000u * 509);
  // Copying the text so far for each message would copy 4 GB; this takes a fraction of a second.
  // The bound allows for a busy machine.
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(30));
}

TEST(TemplateTest, ContextsAreChecked) {
  const auto refuses = [](const std::string& json) -> std::string {
    try {
      parse_context(json, "c.json");
    } catch (const InputError& error) {
      return error.what();
    }
    return "none";
  };
  EXPECT_EQ(refuses("[]"), "c.json: the context is not a JSON object");
  EXPECT_EQ(refuses("3"), "c.json: the context is not a JSON object");
  EXPECT_THAT(refuses("{\"a\": "), HasSubstr("invalid JSON at byte"));
  EXPECT_EQ(
      render("{{ a }} {{ [a] }} {{ a | tojson }} {{ a > 5 }}", R"({"a": 18446744073709551615})")
          .bytes(),
      "18446744073709551615 [18446744073709551615] 18446744073709551615 True");
  // Python's numbers have any length.
  EXPECT_EQ(render("{{ a }} {{ [a] | tojson }} {{ a == a }} {{ a is number }} {{ a < 5 }}",
                   R"({"a": -123456789012345678901234567890})")
                .bytes(),
            "-123456789012345678901234567890 [-123456789012345678901234567890] True True True");
  EXPECT_EQ(refuses("{\"a\": 99999999999999999999999}"), "none");
  EXPECT_THAT(refuses("{\"a\":" + std::string(100'000, '[')), HasSubstr("deep"));
  EXPECT_THAT(refuses("{\"a\": \"\xff\"}"), HasSubstr("invalid JSON"));
  EXPECT_EQ(render("{{ a }}{{ b }}", R"({"a": 1, "b": 1e5, "a": 2})").bytes(), "2100000.0");
}

TEST(TemplateTest, TheClockIsWhatItIsSetTo) {
  EXPECT_EQ(render("{{ strftime_now('%Y-%m-%d %H:%M|%d %B %Y|%a%f%%f') }}").bytes(),
            "2026-11-22 00:00|22 November 2026|Sun000000%f");
  EXPECT_THROW(parse_time("2026-13-01", "now"), UsageError);
  EXPECT_THROW(parse_time("2026-02-30", "now"), UsageError);
  EXPECT_THROW(parse_time("22.11.2026", "now"), UsageError);
  EXPECT_THROW(parse_time("2026-11-22T25:00", "now"), UsageError);
  EXPECT_EQ(parse_time("2026-11-22T18:30:05", "now").tm_sec, 5);
  EXPECT_EQ(time_of_epoch(0).tm_year, 70);
}

}  // namespace
}  // namespace fasa::jinja
