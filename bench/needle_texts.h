// Texts with planted facts for the bundled model, of the kind that it was trained to store and
// recall (models/needle-3m/needle.json).
#pragma once

#include <algorithm>
#include <cstdint>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/eval/needle_text.h"
#include "tests/support/source_path.h"

namespace fasa::bench {

struct NeedleText {
  std::string text;                   // facts planted, no questions
  std::vector<NeedleFact> questions;  // in another order
};

// `bytes` of `source` from `offset` on, with `facts` facts in it, spread evenly with a random
// shift.
inline NeedleText plant_facts(std::string_view source, size_t offset, size_t bytes, int facts,
                              uint64_t seed) {
  const auto needle = NeedleTemplate::load(source_path("models/needle-3m/needle.json"));
  std::mt19937_64 random(seed);
  std::vector<std::string> keys = needle.keys();
  std::shuffle(keys.begin(), keys.end(), random);
  const size_t stretch = bytes / static_cast<size_t>(facts);
  std::vector<PlantedFact> planted;
  NeedleText result;
  for (size_t i = 0; i < static_cast<size_t>(facts); ++i) {
    const NeedleFact fact = needle.fact(keys[i], needle.draw_value(random));
    planted.push_back({fact, i * stretch + random() % stretch});
    result.questions.push_back(fact);
  }
  result.text = plant(source.substr(offset, bytes), planted);
  std::shuffle(result.questions.begin(), result.questions.end(), random);
  return result;
}

}  // namespace fasa::bench
