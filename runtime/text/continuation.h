// The text that generated ids add to a prompt.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "runtime/text/tokenizer.h"

namespace fasa::text {

// The concatenated results of push() and finish() are the text of prompt and generated ids, without
// the prompt's own text: a first " word" keeps its blank if the prompt has text. Special tokens are
// skipped. Not thread-safe.
class Continuation {
 public:
  // `tokenizer` must outlive it. `shown`: special tokens that are not skipped.
  Continuation(const Tokenizer& tokenizer, std::span<const int32_t> prompt,
               const std::vector<int32_t>& shown = {});

  std::string push(int32_t id) { return behind_prompt(stream_.push(id)); }
  std::string finish() { return behind_prompt(stream_.finish()); }

 private:
  std::string behind_prompt(std::string text);

  DecodeStream stream_;
  std::string held_;  // end of the prompt's text, still held back
};

}  // namespace fasa::text
