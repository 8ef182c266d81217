#include "runtime/serve/known_texts.h"

#include <algorithm>
#include <utility>

#include "runtime/text/token_bytes.h"

namespace fasa::serve {

KnownText::KnownText(const text::Tokenizer& tokenizer, std::string salt_of, std::string text_of,
                     std::vector<int32_t> ids_of)
    : salt(std::move(salt_of)),
      text(std::move(text_of)),
      ids(std::move(ids_of)),
      cuts(cuts_of(tokenizer, text, ids)) {}

void KnownTexts::remember(KnownText text) {
  // Conversations only grow: the new text replaces the known text that it continues.
  for (auto known = known_.begin(); known != known_.end();) {
    const bool beginning = known->salt == text.salt && text.text.starts_with(known->text);
    if (beginning) bytes_ -= known->bytes();
    known = beginning ? known_.erase(known) : std::next(known);
  }
  known_.push_front(std::move(text));
  bytes_ += known_.front().bytes();
  while (bytes_ > max_bytes_ && !known_.empty()) {
    bytes_ -= known_.back().bytes();
    known_.pop_back();
  }
}

// As far as the ids spell the text byte for byte: a normalizer or a token without bytes ends it.
std::vector<KnownText::Cut> KnownText::cuts_of(const text::Tokenizer& tokenizer,
                                               std::string_view text,
                                               std::span<const int32_t> ids) {
  std::vector<Cut> cuts;
  size_t at = 0;
  for (size_t i = 0; i < ids.size(); ++i) {
    const std::string bytes = text::spelled_bytes(tokenizer, ids[i]);
    if (bytes.empty() || !text.substr(at).starts_with(bytes)) break;
    if (tokenizer.is_special(ids[i]) && i > 0) cuts.push_back({at, i, bytes.size()});
    at += bytes.size();
  }
  return cuts;
}

namespace {

size_t common_bytes(std::string_view a, std::string_view b) {
  return static_cast<size_t>(std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first -
                             a.begin());
}

}  // namespace

KnownBeginning known_beginning(const KnownText& known, std::string_view prompt,
                               const EndOfAnswer& end_of) {
  const std::string_view text = known.text;
  size_t from = 0;       // the last answer that stands for another spelling ends here
  size_t in_prompt = 0;  // the same place in the prompt
  size_t same = common_bytes(text, prompt);  // both agree behind these places
  for (const KnownAnswer& answer : known.answers) {
    const size_t at = from + same;
    if (at >= answer.end) continue;
    const size_t end = at < answer.said ? 0 : end_of(answer);
    if (end == 0 || end < in_prompt + same) break;
    from = answer.end, in_prompt = end;
    same = common_bytes(text.substr(from), prompt.substr(in_prompt));
  }
  if (from + same == text.size()) return {text.size(), known.ids.size(), in_prompt + same};
  const auto agrees = [&](const KnownText::Cut& cut) {
    return cut.bytes + cut.size <= from + same;
  };
  const auto end = std::partition_point(known.cuts.begin(), known.cuts.end(), agrees);
  if (end == known.cuts.begin()) return {};
  const KnownText::Cut& cut = *std::prev(end);
  if (cut.bytes >= from) return {cut.bytes, cut.ids, in_prompt + cut.bytes - from};
  return from == 0 ? KnownBeginning{}  // else without other spellings
                   : known_beginning(known, prompt, [](const KnownAnswer&) { return size_t{0}; });
}

const KnownText* KnownTexts::find(std::string_view salt, std::string_view prompt) {
  const auto none = [](const KnownAnswer&) { return size_t{0}; };
  std::pair<size_t, size_t> longest = {0, 0};  // bytes with ids, and all that both have
  auto holder = known_.end();
  for (auto known = known_.begin(); known != known_.end(); ++known) {
    if (known->salt != salt) continue;
    const std::pair same(known_beginning(*known, prompt, none).bytes,
                         common_bytes(known->text, prompt));
    if (same > longest) longest = same, holder = known;
  }
  if (holder == known_.end()) return nullptr;
  known_.splice(known_.begin(), known_, holder);
  return &known_.front();
}

}  // namespace fasa::serve
