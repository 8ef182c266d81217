// An answer taken apart at once, and in pieces of any length.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <ostream>
#include <string_view>
#include <vector>

#include "tests/answer/answer_pieces.h"

namespace fasa::text {

// At once, byte by byte, and cut into two at every place.
inline ParsedAnswer parse_answer(const AnswerReading& reading, std::string_view text) {
  const ParsedAnswer whole = parse_in_steps(reading, text, text.size(), 1);
  EXPECT_EQ(parse_in_steps(reading, text, 0, 1), whole) << text;
  for (size_t cut = 1; cut < text.size(); ++cut) {
    EXPECT_EQ(parse_in_steps(reading, text, cut, text.size()), whole) << cut << ": " << text;
  }
  return whole;
}

inline std::ostream& operator<<(std::ostream& out, const ParsedAnswer& answer) {
  out << "reasoning [" << answer.reasoning << "] content [" << answer.content << "]";
  for (const auto& [name, arguments] : answer.calls) out << " call " << name << " " << arguments;
  return out;
}

inline std::shared_ptr<const CodedFormat> format_as_text(std::string_view name) {
  const AnswerFormat* const row = find_answer_format(name);
  EXPECT_NE(row, nullptr) << name;
  return std::make_shared<const CodedFormat>(*row);
}

// get_weather(town: string, days: integer, exact: boolean, at: {lat: number}), now(), and
// write(path: string, text: string).
inline std::vector<CallableFunction> weather_functions() {
  using Json = nlohmann::ordered_json;
  return {{"get_weather", Json::parse(R"({"type": "object", "properties": {
             "town": {"type": "string"}, "days": {"type": "integer"},
             "exact": {"type": "boolean"},
             "at": {"type": "object", "properties": {"lat": {"type": "number"}}}},
             "required": ["town"]})")},
          {"now", nullptr},
          {"write", Json::parse(R"({"type": "object", "properties": {
             "path": {"type": "string"}, "text": {"type": "string"}}})")}};
}

}  // namespace fasa::text
