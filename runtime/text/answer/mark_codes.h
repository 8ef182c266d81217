// Marks that are tokens of a vocabulary, as single bytes within texts.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/text/answer/answer_format.h"
#include "runtime/text/tokenizer.h"

namespace fasa::text {

// A mark that is an added token becomes a byte that UTF-8 never has: text that only looks like it
// is not it, and a search for it is a search for a byte. Other marks stay text. Immutable.
class MarkCodes {
 public:
  MarkCodes() = default;  // no mark is a token
  MarkCodes(const AnswerFormat& format, const Tokenizer& tokenizer);

  // The byte of a token that is a mark.
  std::optional<char> code(int32_t id) const;
  // Marks of a text as bytes, and back.
  std::string coded(std::string text) const;
  std::string spelled(std::string_view text) const;
  static bool is_code(char byte);

  struct Mark {
    std::string text;
    int32_t id;
    char code;
  };
  const std::vector<Mark>& marks() const { return marks_; }

 private:
  std::vector<Mark> marks_;
};

}  // namespace fasa::text
