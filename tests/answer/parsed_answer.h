// An answer taken apart at once, and in pieces of any length.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/text/answer/answer_reader.h"

namespace fasa::text {

struct ParsedAnswer {
  std::string reasoning, content;
  std::vector<std::pair<std::string, std::string>> calls;  // name, arguments
  std::vector<bool> whole;

  void add(const std::vector<AnswerPiece>& pieces) {
    for (const AnswerPiece& piece : pieces) {
      if (piece.kind == AnswerPiece::Kind::kContent) {
        content += piece.text;
      } else if (piece.kind == AnswerPiece::Kind::kReasoning) {
        reasoning += piece.text;
      } else if (piece.kind == AnswerPiece::Kind::kCallBegin) {
        EXPECT_EQ(piece.call, static_cast<int>(calls.size()));
        calls.emplace_back(piece.text, "");
        whole.push_back(false);
      } else {
        ASSERT_EQ(piece.call + 1, static_cast<int>(calls.size()));
        EXPECT_FALSE(whole.back());
        calls.back().second += piece.text;
        whole.back() = piece.whole;
      }
    }
  }
  bool operator==(const ParsedAnswer&) const = default;
};

inline ParsedAnswer parse_in_steps(const AnswerReading& reading, std::string_view text,
                                   size_t first, size_t step) {
  AnswerReader reader(std::make_shared<const AnswerReading>(reading));
  ParsedAnswer parsed;
  parsed.add(reader.push(text.substr(0, first)));
  for (size_t at = first; at < text.size(); at += step)
    parsed.add(reader.push(text.substr(at, step)));
  parsed.add(reader.finish());
  return parsed;
}

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
