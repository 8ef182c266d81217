// The text that generated ids add to a prompt's.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "runtime/text/tokenizer.h"

namespace fasa::text {

// What the pushes and finish() return, put together, is the text of prompt and generated ids behind
// the prompt's own: a first " word" keeps its blank where the prompt has text. Special tokens are
// left out. Not thread-safe.
class Continuation {
 public:
  // `tokenizer` outlives it. `shown`: special tokens that are not left out.
  Continuation(const Tokenizer& tokenizer, std::span<const int32_t> prompt,
               const std::vector<int32_t>& shown = {});

  std::string push(int32_t id) { return behind_prompt(stream_.push(id)); }
  std::string finish() { return behind_prompt(stream_.finish()); }

 private:
  std::string behind_prompt(std::string text);

  DecodeStream stream_;
  std::string held_;  // the prompt's end, which the stream still holds back
};

}  // namespace fasa::text
