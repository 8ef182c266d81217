// Cutting words at the matches of a pattern.
#pragma once

#include <string>
#include <vector>

#include "runtime/text/pre_tokenizer.h"
#include "runtime/text/regex.h"

namespace fasa::text {

// What becomes of a match: dropped, a word of its own, a part of the word before or after it, or of
// the matches beside it.
enum class SplitBehavior { kRemoved, kIsolated, kMergedWithPrevious, kMergedWithNext, kContiguous };

class Splitter final : public PreTokenizer {
 public:
  // `invert`: what lies between matches counts as matches.
  Splitter(Regex pattern, SplitBehavior behavior, bool invert)
      : pattern_(std::move(pattern)), behavior_(behavior), invert_(invert) {}

  void apply(Words& words) const override;

 private:
  Regex pattern_;
  SplitBehavior behavior_;
  bool invert_;
};

}  // namespace fasa::text
