#include "runtime/serve/prompt_turns.h"

#include <algorithm>
#include <numeric>

namespace fasa::serve {

bool PromptTurns::oldest_first(const Prompt& oldest, int chunk) const {
  if (share_ >= 1) return true;
  return share_ > 0 && oldest.owed >= static_cast<double>(std::min<int64_t>(chunk, oldest.most));
}

std::vector<size_t> PromptTurns::order(std::span<const Prompt> prompts, int chunk) const {
  std::vector<size_t> order(prompts.size());
  std::iota(order.begin(), order.end(), size_t{0});
  const auto less_left = [&](size_t a, size_t b) { return prompts[a].left < prompts[b].left; };
  const bool by_age = oldest_first(prompts[0], chunk);
  if (share_ < 1) std::stable_sort(order.begin() + (by_age ? 1 : 0), order.end(), less_left);
  return order;
}

std::vector<PromptTurns::Turn> PromptTurns::next(std::span<const Prompt> prompts, int chunk,
                                                 bool whole) const {
  if (prompts.empty()) return {};
  std::vector<Turn> turns;
  int64_t room = chunk;
  for (const size_t i : order(prompts, chunk)) {
    const Prompt& prompt = prompts[i];
    if (prompt.most == 0) continue;
    const int64_t tokens = std::min(prompt.most, room);
    if (tokens == 0 || (whole && !turns.empty() && tokens < prompt.left)) break;
    turns.push_back({i, static_cast<int>(tokens)});
    room -= tokens;
  }
  std::sort(turns.begin(), turns.end(), [](Turn a, Turn b) { return a.prompt < b.prompt; });
  return turns;
}

double PromptTurns::owed_after(std::span<const Prompt> prompts, std::span<const Turn> turns) const {
  if (prompts.empty()) return 0;
  int own = 0, others = 0;
  for (const Turn& turn : turns) (turn.prompt == 0 ? own : others) += turn.tokens;
  if (others > 0) others = std::max(others, kMinTokens - own);
  return owed_after(prompts[0].owed, own, others);
}

double PromptTurns::owed_after(double owed, double own, double others) const {
  return share_ >= 1 ? 0 : std::max(0.0, owed - own + others * share_ / (1 - share_));
}

}  // namespace fasa::serve
