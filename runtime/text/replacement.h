// Shared by the normalizer and the decoder called Replace: finds a text's matches.
#pragma once

#include <string>
#include <string_view>

#include "runtime/text/json_part.h"
#include "runtime/text/regex.h"

namespace fasa::text {

class Replacement {
 public:
  // `part` has "pattern" and "content". Throws InputError.
  explicit Replacement(const JsonPart& part)
      : pattern_(part.pattern("pattern")), content_(part.required_text("content")) {
    if (content_.size() > kMaxContentBytes) part.fail("content", "up to 1024 bytes");
    if (const std::string* literal = part.literal("pattern")) literal_ = *literal;
  }

  const std::string& content() const { return content_; }
  const std::string& where() const { return pattern_.where(); }

  // Calls visit(Span) for each match, in order.
  template <typename Visit>
  void for_each_match(std::string_view text, Visit visit) const {
    if (text.empty()) return;
    if (literal_.empty()) {
      RegexSearch search(pattern_, text);
      while (const auto match = search.next()) visit(*match);
      return;
    }
    for (size_t at = text.find(literal_); at != std::string_view::npos;) {
      visit(Span{at, at + literal_.size()});
      at = text.find(literal_, at + literal_.size());
    }
  }

 private:
  Regex pattern_;
  std::string content_;
  std::string literal_;  // the pattern, if it is plain text: ten times faster
};

}  // namespace fasa::text
