// Answers of models in each format: the same result wherever the text is cut, and whole arguments
// are JSON. The first letter is the format's, a capital one begins within a thought.
#include <memory>
#include <nlohmann/json.hpp>
#include <string_view>

#include "tests/answer/answer_pieces.h"
#include "tests/fuzz/fuzz_target.h"

namespace {

using namespace fasa::text;

AnswerReading reading_of(const AnswerFormat& row, bool thought) {
  AnswerReading reading;
  reading.format = std::make_shared<const CodedFormat>(row);
  reading.functions = {{"f", nlohmann::ordered_json::parse(R"({"type": "object", "properties": {
      "a": {"type": "string"}, "n": {"type": "integer"}, "o": {"type": "object"}, "l": {}}})")},
                       {"now", nullptr}};
  using Start = AnswerStart::Kind;
  reading.start.kind = thought                     ? Start::kThought
                       : row.channels.open.empty() ? Start::kNothing
                                                   : Start::kHeader;
  return reading;
}

// JSON has no other bytes and escapes than those of characters.
bool has_plain_characters(std::string_view text) {
  for (const char byte : text) {
    if (static_cast<unsigned char>(byte) >= 0x80 || byte == '\\') return false;
  }
  return true;
}

}  // namespace

FASA_FUZZ_TARGET(answer) {
  if (size == 0) return;
  const auto rows = answer_formats();
  const std::string_view text = text_of(data, size).substr(1);
  const bool thought = (data[0] & 0x20) == 0;
  const AnswerReading reading = reading_of(rows[(data[0] & 0x1f) % rows.size()], thought);
  const ParsedAnswer whole = parse_in_steps(reading, text, text.size(), 1);
  if (parse_in_steps(reading, text, 0, 1) != whole) std::abort();
  if (parse_in_steps(reading, text, text.size() / 2, text.size()) != whole) std::abort();
  for (size_t i = 0; i < whole.calls.size(); ++i) {
    const bool json = nlohmann::json::accept(whole.calls[i].second);
    if (whole.whole[i] && has_plain_characters(text) && !json) std::abort();
  }
}
