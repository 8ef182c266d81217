// The order in which waiting prompts are computed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace fasa::serve {

// The prompt with the least left goes first. The oldest gets at least `share` of all prompt tokens
// while others compete with it, so that every prompt ends at most 1 / share times as late as in
// order of arrival, plus a chunk for each older prompt.
class PromptTurns {
 public:
  static constexpr int kMinTokens = 16;  // a step with fewer tokens counts as so many

  struct Prompt {
    int64_t left = 0;  // tokens until its first answer token
    int64_t most = 0;  // of them in the next step; 0: it takes no part
    double owed = 0;   // tokens of its share that other prompts took
  };
  struct Turn {
    size_t prompt = 0;
    int tokens = 0;
  };

  // `share`: from 0, the least left always first, to 1, in order of arrival.
  explicit PromptTurns(double share) : share_(share) {}

  // The turns of one step, `chunk` tokens at most. Prompts and turns: oldest first. With `whole`,
  // prompts after the first in turn take part only if they end in this step, so that a short
  // prompt does not wait for a part of a long one.
  std::vector<Turn> next(std::span<const Prompt> prompts, int chunk, bool whole) const;
  // The prompt that is first in turn, of at least one.
  size_t first(std::span<const Prompt> prompts, int chunk) const {
    return order(prompts, chunk)[0];
  }
  // What the oldest prompt is owed after these turns, or after `own` tokens of it and `others`.
  double owed_after(std::span<const Prompt> prompts, std::span<const Turn> turns) const;
  double owed_after(double owed, double own, double others) const;

 private:
  bool oldest_first(const Prompt& oldest, int chunk) const;
  std::vector<size_t> order(std::span<const Prompt> prompts, int chunk) const;

  double share_;
};

}  // namespace fasa::serve
