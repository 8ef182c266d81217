// A text with planted facts, followed by all of its questions with their answers, as one run.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bench/needle_texts.h"
#include "runtime/text/tokenizer.h"

namespace fasa::bench {

// Queries about facts: those at the question's last byte and at the answer's first four digits,
// each of which predicts a digit. One token per byte.
struct QuestionText {
  std::vector<int32_t> ids;
  int64_t text_end = 0;
  std::vector<int32_t> positions;
};

inline QuestionText with_questions(const text::TextCoder& tokenizer, const NeedleText& needle,
                                   size_t questions) {
  std::string text = needle.text;
  QuestionText result;
  result.text_end = static_cast<int64_t>(text.size());
  for (size_t i = 0; i < questions; ++i) {
    text += needle.questions[i].question;
    for (size_t digit = 0; digit < 5; ++digit) {
      result.positions.push_back(static_cast<int32_t>(text.size() + digit) - 1);
    }
    text += needle.questions[i].answer + ".";
  }
  result.ids = tokenizer.encode(text);
  return result;
}

}  // namespace fasa::bench
