// Drafts by the model's head of multi-token prediction. From the hidden state of a token and the
// token behind it, the head predicts the token after that; from its own state and that token, the
// next one. Its keys and values are a sequence of MtpCache: they begin with the first states it is
// given, and end with it.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "runtime/llm/generation/draft_rate.h"
#include "runtime/llm/generation/draft_source.h"
#include "runtime/llm/generation/mtp_cache.h"
#include "runtime/llm/generation/owned_sequence.h"

namespace fasa {

class MtpDrafts final : public DraftSource {
 public:
  static constexpr int kMost = 3;         // in a step
  static constexpr int kMaxWaiting = 16;  // states that wait for the head

  // `cache` must outlive it. `first`: tokens of the text before those that append() names. Without
  // memory it makes no drafts.
  MtpDrafts(MtpCache& cache, int64_t first);

  void append(int32_t token) override { tokens_.push_back(token); }
  size_t size() const override { return static_cast<size_t>(first_) + tokens_.size(); }
  std::span<const int32_t> propose(int most, int others, const BatchTimes& times) override;
  void judged(int right) override;
  void reserve(int64_t tokens) override;
  float* step_states(int tokens) override;
  void computed(float* states, int tokens) override;
  bool release_memory() override;

  // Tokens whose keys and values the head has, and states that wait for it.
  int64_t fed() const { return fed_; }
  int waiting() const { return waiting_; }

 private:
  template <typename Work>
  void with_memory(const Work& work);
  void take(float* states, int tokens);
  void feed(float* states, int tokens);
  void feed_waiting();
  std::span<const float> step(std::span<const int32_t> tokens, float* given, bool last);
  void draft(int count);

  MtpCache& cache_;
  std::optional<OwnedSequence> sequence_;  // none: memory was short
  Buffer waiting_states_;                  // [kMaxWaiting, hidden]
  Buffer own_states_;                      // [kMaxWaiting, hidden], of the head's last step
  std::vector<int32_t> tokens_;
  int64_t first_;    // tokens of the text before tokens_
  int64_t fed_ = 0;  // of tokens_, those whose state the head has read
  int waiting_ = 0;  // states of the tokens behind these
  std::vector<int32_t> proposal_;
  DraftRate record_{.prior = 0.8};
  double draft_seconds_ = 0;  // that a draft took lately
};

}  // namespace fasa
