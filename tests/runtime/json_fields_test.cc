// JSON from outside: the depth limit, and the wording of errors.
#include "runtime/io/json_fields.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <utility>

#include "runtime/base/error.h"

namespace fasa {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::string nested(size_t depth, const std::string& open = "[", const std::string& close = "]") {
  std::string text;
  for (size_t i = 0; i < depth; ++i) text += open;
  if (open != "[") text += "1";
  for (size_t i = 0; i < depth; ++i) text += close;
  return text;
}

std::string error_of(const std::function<void()>& read) {
  try {
    read();
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

TEST(ParseJson, TakesWhatIsNestedUpToTheLimit) {
  for (const auto& [open, close] : {std::pair("[", "]"), std::pair("{\"a\":", "}")}) {
    EXPECT_NO_THROW(parse_json(nested(kMaxJsonDepth, open, close), "a.json"));
    EXPECT_THAT(error_of([&, o = std::string(open), c = std::string(close)] {
                  parse_json(nested(kMaxJsonDepth + 1, o, c), "a.json");
                }),
                AllOf(HasSubstr("a.json: byte "), HasSubstr("65 deep; allowed: 64")));
  }
  EXPECT_THAT(error_of([] { parse_json(nested(65), "a.json"); }), HasSubstr("byte 65 of 130"));
}

// Siblings, and brackets inside strings, do not add depth.
TEST(ParseJson, CountsLevelsOnly) {
  std::string wide = "[";
  for (int i = 0; i < 10000; ++i) wide += "[],";
  EXPECT_EQ(parse_json(wide + "0]", "a").size(), 10001u);
  const std::string text = "[\"" + std::string(100, '[') + "\\\"" + std::string(100, '{') + "\"]";
  EXPECT_EQ(parse_json(text, "a").at(0).get<std::string>().size(), 201u);
  EXPECT_EQ(parse_json("[\"\\\\\", [[]]]", "a").size(), 2u);
  EXPECT_THAT(error_of([] { parse_json(std::string(40, ']') + std::string(70, '['), "a"); }),
              HasSubstr("invalid JSON at byte 1"));
}

TEST(ParseJson, NamesThePlace) {
  EXPECT_THAT(error_of([] { parse_json("{\"a\": ]", "a.json"); }),
              HasSubstr("a.json: invalid JSON at byte 7 of 7"));
  EXPECT_THAT(error_of([] { parse_json("[1e999]", "a.json"); }), HasSubstr("a.json: invalid JSON"));
}

// A field of the wrong type is printed in the error, truncated: that code recurses into the value.
TEST(JsonFields, ShowsAValueAsDeepAsTheyGo) {
  const nlohmann::json json = parse_json("{\"size\": " + nested(kMaxJsonDepth - 1) + "}", "a.json");
  EXPECT_THAT(error_of([&] { JsonFields(json, "a.json").integer("size", 1, 9); }),
              AllOf(HasSubstr("a.json: size = [[["), HasSubstr("...; allowed: an integer from 1")));
}

}  // namespace
}  // namespace fasa
