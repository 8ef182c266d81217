// A piece of an answer.
#pragma once

#include <cstdint>
#include <string>

namespace fasa::text {

// A call comes as its beginning (`text` is the name), then the JSON of its arguments.
struct AnswerPiece {
  enum class Kind : uint8_t { kContent, kReasoning, kCallBegin, kCallArguments };
  Kind kind;
  std::string text;
  int call = 0;        // which one, from 0
  bool whole = false;  // of arguments: the last ones; the object is complete
};

}  // namespace fasa::text
