// Sentences among which facts are hidden.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/eval/eval_text.h"

namespace fasa {

// The sentences of a text, each with the blanks behind it, so that they make up the text again. A
// sentence without an end is cut at a blank.
std::vector<std::string_view> sentences(std::string_view text);

class Haystack {
 public:
  // A few sentences that repeat.
  static Haystack noise();
  // `texts` must outlive it, and not be empty.
  static Haystack of_texts(std::span<const EvalText> texts);

  size_t size() const { return sentences_.size(); }
  // `count` sentences from `first` on; the first follows the last.
  std::vector<std::string> take(size_t first, size_t count) const;

 private:
  std::vector<std::string_view> sentences_;
};

}  // namespace fasa
