// Ends a text where it spells one of some strings, which may lie across tokens.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace fasa::text {

// Text goes in as it comes and comes out as soon as no stop string can begin in it. The first stop
// string to be complete ends the text, the longest where several are; it is left out. How the text
// is cut into pushes makes no difference. Not thread-safe.
class StopStrings {
 public:
  // Throws UsageError for an empty one.
  explicit StopStrings(std::vector<std::string> strings);

  // What is certain now. Nothing comes any more once stopped().
  std::string push(std::string_view text);
  // What was held back, at the text's end.
  std::string finish();
  bool stopped() const { return stopped_; }

 private:
  // Bytes at the end of `held_` that a stop string may begin with.
  size_t possible_beginning() const;

  std::vector<std::string> strings_;
  std::string held_;
  bool stopped_ = false;
};

}  // namespace fasa::text
