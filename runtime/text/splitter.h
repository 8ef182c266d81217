// Splits words at the matches of a pattern.
#pragma once

#include <string>
#include <vector>

#include "runtime/text/pre_tokenizer.h"
#include "runtime/text/regex.h"

namespace fasa::text {

// Treatment of a match: dropped, its own word, merged with the previous or next word, or with
// adjacent matches.
enum class SplitBehavior { kRemoved, kIsolated, kMergedWithPrevious, kMergedWithNext, kContiguous };

class Splitter final : public PreTokenizer {
 public:
  // `invert`: the text between matches counts as the matches.
  Splitter(Regex pattern, SplitBehavior behavior, bool invert)
      : pattern_(std::move(pattern)), behavior_(behavior), invert_(invert) {}

  void apply(Words& words) const override;

 private:
  Regex pattern_;
  SplitBehavior behavior_;
  bool invert_;
};

}  // namespace fasa::text
