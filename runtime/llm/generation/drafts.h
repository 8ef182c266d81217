// Drafts of an answer's next tokens: what followed the same tokens before, in prompt and answer.
// Prompt lookup: Saxena, 2023.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "runtime/llm/generation/draft_rate.h"
#include "runtime/llm/generation/draft_source.h"

namespace fasa {

class Drafts final : public DraftSource {
 public:
  static constexpr int kMost = 15;  // in a step

  // `prediction`: another text that the answer may repeat; may be empty.
  Drafts(std::span<const int32_t> prediction, std::span<const int32_t> text);

  void append(int32_t token) override;
  std::span<const int32_t> propose(int most, int others, const BatchTimes& times) override;
  size_t size() const override { return text_.size() - begin_; }
  void judged(int right) override;

 private:
  static constexpr int kMinMatch = 3, kMaxMatch = 12;  // tokens
  static constexpr int kCandidates = 64;               // newest places that are compared
  static constexpr int kHashBits = 16;

  struct Match {
    int length = 0;
    size_t next = 0;  // the place behind it
  };

  size_t hash(size_t end) const;
  int common(size_t end) const;
  Match longest_match() const;
  DraftRate& record_of(int length) { return records_[length < 5 ? 0 : length < 9 ? 1 : 2]; }

  static constexpr int32_t kBorder = -1;  // no token

  std::vector<int32_t> text_;  // the prediction, a border, and the text
  size_t begin_ = 0;           // of the text
  // By hash of kMinMatch tokens, the newest place behind such; by place, the one before.
  std::vector<int32_t> newest_ = std::vector<int32_t>(size_t{1} << kHashBits, -1);
  std::vector<int32_t> before_;
  std::vector<int32_t> proposal_;
  int match_ = 0;                   // length, of the proposal
  std::array<DraftRate, 3> records_{// by the match's length
                                    {{.prior = 0.4}, {.prior = 0.6}, {.prior = 0.8}}};
};

}  // namespace fasa
