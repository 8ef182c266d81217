// An answer put together from its pieces.
#pragma once

#include <memory>
#include <stdexcept>
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
        if (piece.call != static_cast<int>(calls.size())) throw std::logic_error("calls in order");
        calls.emplace_back(piece.text, "");
        whole.push_back(false);
      } else {
        const bool last = piece.call + 1 == static_cast<int>(calls.size());
        if (!last || whole.back()) throw std::logic_error("arguments of no open call");
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

}  // namespace fasa::text
