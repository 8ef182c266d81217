#include "runtime/text/continuation.h"

#include <utility>

namespace fasa::text {

Continuation::Continuation(const Tokenizer& tokenizer, std::span<const int32_t> prompt,
                           const std::vector<int32_t>& shown)
    : stream_(tokenizer, true, shown) {
  DecodeStream whole(tokenizer, true, shown);
  size_t sent = 0;
  for (const int32_t id : prompt) {
    sent += stream_.push(id).size();
    held_ += whole.push(id);
  }
  held_ += whole.finish();
  held_.erase(0, sent);
}

// A prompt that ends within a character decodes with U+FFFD at its end; the completed character is
// then part of the continuation.
std::string Continuation::behind_prompt(std::string text) {
  if (held_.empty() || text.empty()) return text;
  const std::string held = std::exchange(held_, "");
  return text.starts_with(held) ? text.substr(held.size()) : text;
}

}  // namespace fasa::text
