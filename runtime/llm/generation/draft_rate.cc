#include "runtime/llm/generation/draft_rate.h"

namespace fasa {

void DraftRate::add(int good, int made) {
  fade(0.9);
  right += good;
  judged += good + (good < made ? 1 : 0);
}

int drafts_that_pay(double rate, int most, int others, const BatchTimes& times, double cost) {
  int best = 0;
  double best_speed = 0, tokens = others, chance = 1;
  for (int count = 0; count <= most; ++count, chance *= rate) {
    tokens += chance;
    const double speed = tokens / (times.relative(others + 1 + count) + count * cost);
    if (speed > best_speed) best = count, best_speed = speed;
  }
  return best;
}

}  // namespace fasa
