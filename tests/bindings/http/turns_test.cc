// Where system messages and turns go for templates that refuse them elsewhere.
#include "bindings/http/turns.h"

#include <gtest/gtest.h>

#include <string>

namespace fasa::serve {
namespace {

Json message(const char* role, const char* text) { return {{"role", role}, {"content", text}}; }

Json called(const char* id) {
  Json answer = message("assistant", "");
  answer["tool_calls"] = Json::array({{{"id", id}, {"function", {{"name", "f"}}}}});
  return answer;
}

Json first(const Json& messages, size_t count) {
  Json some = Json::array();
  for (size_t i = 0; i < count; ++i) some.push_back(messages[i]);
  return some;
}

std::string shown(const Json& messages) {
  std::string text;
  for (const Json& one : messages) {
    text += "<" + one.value("role", "") + ">" + one.value("content", "") +
            (one.contains("tool_calls") ? "[call]" : "");
  }
  return text;
}

TEST(Turns, SystemMessagesAreLostNowhere) {
  const Json messages = {message("system", "A"),
                         message("system", "B"),
                         message("user", "Q"),
                         message("system", "C"),
                         called("1"),
                         message("system", "D"),
                         message("tool", "R"),
                         message("system", "E"),
                         message("assistant", "X"),
                         message("system", "F"),
                         message("user", "S"),
                         message("assistant", "Y"),
                         message("system", "G"),
                         message("assistant", "Z")};
  EXPECT_EQ(shown(with_placed_systems(messages)),
            "<system>A\n\nB<user>Q\n\nC<assistant>[call]<tool>R\n\nD\n\nE<assistant>X"
            "<user>F\n\nS<assistant>Y<user>G<assistant>Z");
}

TEST(Turns, LongerConversationsBeginLikeShorterOnes) {
  const Json messages = {message("system", "A"),    message("user", "Q"),
                         message("system", "C"),    called("1"),
                         message("tool", "R"),      message("system", "E"),
                         message("assistant", "X"), message("user", "S"),
                         message("user", "T"),      called("2"),
                         message("user", "U"),      message("system", "V"),
                         message("assistant", "Y"), message("user", "W")};
  const auto made = [](const Json& some) {
    return shown(with_alternating_turns(with_placed_systems(some)));
  };
  const std::string whole = made(messages);
  for (size_t count = 2; count <= messages.size(); ++count) {
    const std::string role = messages[count - 1].value("role", "");
    if (role == "assistant") continue;  // nothing to answer
    const std::string begin = made(first(messages, count));
    EXPECT_TRUE(whole.starts_with(begin)) << count << "\n" << begin << "\n" << whole;
  }
}

TEST(Turns, Alternate) {
  EXPECT_EQ(
      shown(with_alternating_turns({called("1"), message("user", "Q"), message("user", "R"),
                                    called("2"), message("tool", "S"), message("user", "T")})),
      "<user>[continued]<assistant>[call]<tool>[no result]<assistant>[interrupted]"
      "<user>Q\n\nR<assistant>[call]<tool>S<assistant>[interrupted]<user>T");
  const Json results = with_alternating_turns({message("user", "Q"), called("7")});
  EXPECT_EQ(results[2],
            (Json{{"role", "tool"}, {"content", "[no result]"}, {"tool_call_id", "7"}}));
  EXPECT_EQ(shown(with_alternating_turns(Json::array({message("system", "A")}))),
            "<system>A<user>[continued]");
  EXPECT_EQ(shown(with_alternating_turns(Json::array({message("tool", "A")}))), "<user>A");
}

}  // namespace
}  // namespace fasa::serve
