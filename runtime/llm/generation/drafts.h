// Drafts of an answer's next tokens: what followed the same tokens before, in prompt and answer. A
// decode step computes them with the newest token; a draft that the step's own logits confirm saves
// a step, and the others leave no trace. Prompt lookup: Saxena, 2023.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "runtime/llm/generation/batch_times.h"

namespace fasa {

class Drafts {
 public:
  static constexpr int kMost = 15;  // in a step

  // `prediction`: another text that the answer may repeat; may be empty.
  Drafts(std::span<const int32_t> prediction, std::span<const int32_t> text);

  void append(int32_t token);
  // Tokens that may follow, at most `most`: as many as pay in a step that has `others` tokens
  // besides the newest of this text. Valid until the next call.
  std::span<const int32_t> propose(int most, int others, const BatchTimes& times);
  size_t size() const { return text_.size() - begin_; }  // tokens of the text
  // How many of the proposed tokens were right. Call it once for each proposal.
  void judged(int right);

 private:
  static constexpr int kMinMatch = 3, kMaxMatch = 12;  // tokens
  static constexpr int kCandidates = 64;               // newest places that are compared
  static constexpr int kHashBits = 16;

  // How often drafts behind matches of some length were right; the newest count most.
  struct Record {
    double prior = 0;
    double right = 0, judged = 0;
    double rate() const { return (right + prior) / (judged + 1); }
    void fade(double by) { right *= by, judged *= by; }
  };
  struct Match {
    int length = 0;
    size_t next = 0;  // the place behind it
  };

  size_t hash(size_t end) const;
  int common(size_t end) const;
  Match longest_match() const;
  Record& record_of(int length) { return records_[length < 5 ? 0 : length < 9 ? 1 : 2]; }
  static int worth(double rate, int most, int others, const BatchTimes& times);

  static constexpr int32_t kBorder = -1;  // no token

  std::vector<int32_t> text_;  // the prediction, a border, and the text
  size_t begin_ = 0;           // of the text
  // By hash of kMinMatch tokens, the newest place behind such; by place, the one before.
  std::vector<int32_t> newest_ = std::vector<int32_t>(size_t{1} << kHashBits, -1);
  std::vector<int32_t> before_;
  std::vector<int32_t> proposal_;
  int match_ = 0;  // length, of the proposal
  std::array<Record, 3> records_{{{.prior = 0.4}, {.prior = 0.6}, {.prior = 0.8}}};
};

}  // namespace fasa
