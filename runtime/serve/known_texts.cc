#include "runtime/serve/known_texts.h"

#include <utility>

namespace fasa::serve {

void KnownTexts::remember(std::string salt, std::string text, std::vector<int32_t> ids) {
  // Conversations only grow: the new text replaces the known text that it continues.
  for (auto known = known_.begin(); known != known_.end();) {
    const bool beginning = known->salt == salt && text.starts_with(known->text);
    if (beginning) bytes_ -= known->bytes();
    known = beginning ? known_.erase(known) : std::next(known);
  }
  known_.push_front({std::move(salt), std::move(text), std::move(ids)});
  bytes_ += known_.front().bytes();
  while (bytes_ > max_bytes_ && !known_.empty()) {
    bytes_ -= known_.back().bytes();
    known_.pop_back();
  }
}

const KnownTexts::Known* KnownTexts::find(std::string_view salt, std::string_view prompt) {
  auto longest = known_.end();
  for (auto known = known_.begin(); known != known_.end(); ++known) {
    if (known->salt != salt || !prompt.starts_with(known->text)) continue;
    if (longest == known_.end() || known->text.size() > longest->text.size()) longest = known;
  }
  if (longest == known_.end()) return nullptr;
  known_.splice(known_.begin(), known_, longest);
  return &known_.front();
}

}  // namespace fasa::serve
