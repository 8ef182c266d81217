#include "runtime/serve/known_texts.h"

#include <algorithm>
#include <utility>

namespace fasa::serve {

void KnownTexts::remember(std::string salt, std::string text, std::vector<int32_t> ids) {
  // Conversations only grow: the new text replaces the known text that it continues.
  for (auto known = known_.begin(); known != known_.end();) {
    const bool beginning = known->salt == salt && text.starts_with(known->text);
    if (beginning) bytes_ -= known->bytes();
    known = beginning ? known_.erase(known) : std::next(known);
  }
  std::vector<Cut> cuts = cuts_of(text, ids);
  known_.push_front({std::move(salt), std::move(text), std::move(ids), std::move(cuts)});
  bytes_ += known_.front().bytes();
  while (bytes_ > max_bytes_ && !known_.empty()) {
    bytes_ -= known_.back().bytes();
    known_.pop_back();
  }
}

// As far as the ids spell the text byte for byte: a normalizer or a token without bytes ends it.
std::vector<KnownTexts::Cut> KnownTexts::cuts_of(std::string_view text,
                                                 std::span<const int32_t> ids) const {
  std::vector<Cut> cuts;
  size_t at = 0;
  for (size_t i = 0; i < ids.size(); ++i) {
    const bool control = tokenizer_.is_special(ids[i]);
    const std::string bytes =
        control ? std::string(tokenizer_.piece(ids[i])) : tokenizer_.token_bytes(ids[i]);
    if (bytes.empty() || !text.substr(at).starts_with(bytes)) break;
    if (control && i > 0) cuts.push_back({at, i});
    at += bytes.size();
  }
  return cuts;
}

KnownTexts::Beginning KnownTexts::beginning_of(const Known& known, std::string_view prompt) const {
  const std::string_view text = known.text;
  if (prompt.starts_with(text)) return {text.size(), known.ids};
  const auto common = static_cast<size_t>(
      std::mismatch(text.begin(), text.end(), prompt.begin(), prompt.end()).first - text.begin());
  const auto agrees = [&](const Cut& cut) {
    return cut.bytes + tokenizer_.piece(known.ids[cut.ids]).size() <= common;
  };
  const auto end = std::partition_point(known.cuts.begin(), known.cuts.end(), agrees);
  if (end == known.cuts.begin()) return {};
  const Cut& cut = *std::prev(end);
  return {cut.bytes, std::span(known.ids).first(cut.ids)};
}

KnownTexts::Beginning KnownTexts::find(std::string_view salt, std::string_view prompt) {
  Beginning longest;
  auto holder = known_.end();
  for (auto known = known_.begin(); known != known_.end(); ++known) {
    if (known->salt != salt) continue;
    const Beginning beginning = beginning_of(*known, prompt);
    if (beginning.bytes > longest.bytes) longest = beginning, holder = known;
  }
  if (holder != known_.end()) known_.splice(known_.begin(), known_, holder);
  return longest;
}

}  // namespace fasa::serve
