// The history as templates want it.
#include "runtime/text/answer/history_form.h"

#include <gtest/gtest.h>

#include <string>

namespace fasa::text {
namespace {

using Json = nlohmann::ordered_json;

Json call(const char* id, const char* name, Json arguments) {
  return {{"id", id},
          {"type", "function"},
          {"function", {{"name", name}, {"arguments", std::move(arguments)}}}};
}

Json answer(Json calls) {
  return {{"role", "assistant"}, {"content", "Said."}, {"tool_calls", std::move(calls)}};
}

Json result(const char* id, const char* text) {
  return {{"role", "tool"}, {"tool_call_id", id}, {"content", text}};
}

Json shaped(Json messages, const HistoryForm& form) {
  return in_history_form({{"messages", std::move(messages)}}, form);
}

TEST(HistoryForm, NamesOfResultsAndNone) {
  const Json context = shaped(Json::array({answer(Json::array({call("a", "f", Json::object())})),
                                           result("a", "7"), result("b", "8")}),
                              {});
  EXPECT_TRUE(context["tools"].is_null());
  EXPECT_TRUE(context["documents"].is_null());
  EXPECT_EQ(context["messages"][1]["name"], "f");
  EXPECT_FALSE(context["messages"][2].contains("name"));
}

TEST(HistoryForm, ArgumentsAndIds) {
  const Json messages = shaped(
      Json::array({answer(Json::array({call("call_1", "f", {{"a", 1}})})), result("call_1", "7")}),
      {.arguments_as_text = true, .nine_letter_ids = true})["messages"];
  EXPECT_EQ(messages[0]["tool_calls"][0]["function"]["arguments"], R"({"a":1})");
  const auto id = messages[0]["tool_calls"][0]["id"].get<std::string>();
  EXPECT_EQ(id.size(), 9u);
  EXPECT_EQ(messages[1]["tool_call_id"], id);
  EXPECT_EQ(messages[1]["name"], "f");
}

TEST(HistoryForm, OneCallAMessage) {
  const Json messages =
      shaped(Json::array({answer(Json::array({call("a", "f", {}), call("b", "g", {})})),
                          result("b", "2"),
                          result("a", "1"),
                          {{"role", "user"}, {"content", "x"}}}),
             {.one_call = true})["messages"];
  ASSERT_EQ(messages.size(), 5u);
  EXPECT_EQ(messages[0]["content"], "Said.");
  EXPECT_EQ(messages[1]["content"], "1");
  EXPECT_EQ(messages[2]["tool_calls"][0]["function"]["name"], "g");
  EXPECT_EQ(messages[2]["content"], "");
  EXPECT_EQ(messages[3]["content"], "2");
}

TEST(HistoryForm, Reasoning) {
  Json one = answer(Json::array({call("a", "f", {})}));
  one["reasoning_content"] = "Hm.";
  const Json both = shaped(Json::array({one}), {})["messages"][0];
  EXPECT_EQ(both["thinking"], "Hm.");
  EXPECT_EQ(both["tool_plan"], "Hm.");
  EXPECT_EQ(both["content"], "Said.");
  const Json joined = shaped(Json::array({one}), {.text_or_thought = true})["messages"][0];
  EXPECT_EQ(joined["thinking"], "Hm.\n\nSaid.");
  EXPECT_EQ(joined["content"], "");
  const Json parts = shaped(Json::array({one}), {.thinking_parts = true})["messages"][0];
  EXPECT_EQ(parts["content"][0]["thinking"], "Hm.");
  EXPECT_EQ(parts["content"][1]["text"], "Said.");
  const Json none = shaped(Json::array({answer(Json::array()), answer(nullptr)}), {})["messages"];
  EXPECT_FALSE(none[0].contains("tool_calls"));
  EXPECT_FALSE(none[1].contains("tool_calls"));
}

}  // namespace
}  // namespace fasa::text
