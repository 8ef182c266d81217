// How often a source's drafts were right, and how many of them pay.
#pragma once

#include "runtime/llm/generation/batch_times.h"

namespace fasa {

// The newest drafts count most.
struct DraftRate {
  double prior = 0;  // before any draft was judged
  double right = 0, judged = 0;

  double rate() const { return (right + prior) / (judged + 1); }
  void fade(double by) { right *= by, judged *= by; }
  // `good` of `made` drafts were right.
  void add(int good, int made);
};

// The number of drafts, each right at this rate, that gives the most tokens a second, at most
// `most`. `others`: tokens of the step besides the newest of the text. `cost`: what making one
// draft takes, in terms of a step.
int drafts_that_pay(double rate, int most, int others, const BatchTimes& times, double cost = 0);

}  // namespace fasa
