#include "runtime/llm/generation/drafts.h"

#include <algorithm>

namespace fasa {

Drafts::Drafts(std::span<const int32_t> prediction, std::span<const int32_t> text) {
  for (const int32_t token : prediction) append(token);
  if (!prediction.empty()) append(kBorder);
  begin_ = text_.size();
  for (const int32_t token : text) append(token);
}

size_t Drafts::hash(size_t end) const {
  uint64_t hash = 0;
  for (size_t i = end - kMinMatch; i < end; ++i) {
    hash = (hash + static_cast<uint32_t>(text_[i])) * 0x9e3779b97f4a7c15u;
  }
  return hash >> (64 - kHashBits);
}

// A place is listed when the token behind it is known.
void Drafts::append(int32_t token) {
  const size_t end = text_.size();
  before_.push_back(-1);
  if (end >= kMinMatch) {
    int32_t& newest = newest_[hash(end)];
    before_[end] = newest;
    newest = static_cast<int32_t>(end);
  }
  text_.push_back(token);
}

// How many tokens before `end` are those at the text's end.
int Drafts::common(size_t end) const {
  int length = 0;
  while (length < kMaxMatch && static_cast<size_t>(length) < end &&
         text_[end - 1 - length] == text_[text_.size() - 1 - length]) {
    ++length;
  }
  return length;
}

Drafts::Match Drafts::longest_match() const {
  Match best;
  if (text_.size() < kMinMatch) return best;
  int32_t place = newest_[hash(text_.size())];
  for (int i = 0; i < kCandidates && place >= 0; ++i) {
    const auto end = static_cast<size_t>(place);
    const int length = common(end);
    if (length >= kMinMatch && length > best.length) best = {length, end};
    if (length == kMaxMatch) break;
    place = before_[end];
  }
  return best;
}

std::span<const int32_t> Drafts::propose(int most, int others, const BatchTimes& times) {
  proposal_.clear();
  const Match match = longest_match();
  match_ = match.length;
  if (match.length == 0) return {};
  DraftRate& record = record_of(match.length);
  const int count = drafts_that_pay(record.rate(), std::clamp(most, 0, kMost), others, times);
  // What did not pay is tried again after a while.
  if (count == 0 && most > 0) record.fade(0.98);
  // A text that repeats itself goes on doing so.
  const size_t period = text_.size() - match.next;
  for (size_t i = 0; i < static_cast<size_t>(count); ++i) {
    proposal_.push_back(i < period ? text_[match.next + i] : proposal_[i - period]);
    if (proposal_.back() == kBorder) break;
  }
  if (!proposal_.empty() && proposal_.back() == kBorder) proposal_.pop_back();
  return proposal_;
}

void Drafts::judged(int right) {
  if (proposal_.empty()) return;
  record_of(match_).add(right, static_cast<int>(std::ssize(proposal_)));
  proposal_.clear();
}

}  // namespace fasa
