// Ends a text at the first stop string, which may span tokens.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace fasa::text {

// Releases text as soon as no stop string can begin in it. The first stop string to be complete
// ends the text, the longest if several are; it is not part of the text. The result does not depend
// on how the text is divided into pushes. Not thread-safe.
class StopStrings {
 public:
  // Throws UsageError for an empty string.
  explicit StopStrings(std::vector<std::string> strings);

  // Returns the text that became final; "" once stopped().
  std::string push(std::string_view text);
  // Returns the held-back text at the end.
  std::string finish();
  bool stopped() const { return !found_.empty(); }
  const std::string& found() const { return found_; }  // the string that ended the text

 private:
  // Bytes at the end of `held_` that may be the beginning of a stop string.
  size_t possible_beginning() const;

  std::vector<std::string> strings_;
  std::string held_;
  std::string found_;
};

}  // namespace fasa::text
