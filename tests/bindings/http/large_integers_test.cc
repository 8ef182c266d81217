// Whole numbers beyond 64 bits keep their digits.
#include "bindings/http/large_integers.h"

#include <gtest/gtest.h>

#include "bindings/http/api/request_fields.h"

namespace fasa::serve {
namespace {

TEST(LargeIntegers, ArgumentsKeepTheirDigits) {
  for (const char* const text :
       {R"({"a":[-123456789012345678901234567890,18446744073709551616,9223372036854775807]})",
        R"({"a":1.5,"b":"\"12345678901234567890\"","c":"\\"})", R"(12345678901234567890)",
        "\"\xEE\x83\xB2x\xEE\x83\xB2\"", "\"\xEE\x83\xB2\""}) {
    EXPECT_EQ(json_text(*parse_arguments(text)), text);
  }
  const std::string floats = R"({"a": 1e30, "b": 0.12345678901234567890, "c": 12})";
  EXPECT_EQ(with_marked_integers(floats), floats);
  EXPECT_FALSE(parse_arguments("{\"a\": 00000000000000000000001}"));
  EXPECT_FALSE(parse_arguments("{\"a\": 1"));
  // A text within JSON.
  const Json inner = {{"text", parse_arguments("[-12345678901234567890]")->dump()}};
  EXPECT_EQ(json_text(inner), R"({"text":"[-12345678901234567890]"})");
}

TEST(LargeIntegers, BodiesKeepThoseOfMessages) {
  const Json body = parse_body(
      R"({"seed": 12345678901234567890123, "messages": [{"n": 12345678901234567890123}], "x": 1})");
  EXPECT_TRUE(body["seed"].is_number());
  EXPECT_EQ(json_text(body["messages"]), R"([{"n":12345678901234567890123}])");
}

}  // namespace
}  // namespace fasa::serve
