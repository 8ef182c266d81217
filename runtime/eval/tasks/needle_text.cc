#include "runtime/eval/tasks/needle_text.h"

#include <algorithm>

namespace fasa {

std::string plant(std::string_view haystack, std::span<const PlantedFact> facts) {
  std::vector<const PlantedFact*> order;
  for (const PlantedFact& fact : facts) order.push_back(&fact);
  std::stable_sort(order.begin(), order.end(),
                   [](const PlantedFact* a, const PlantedFact* b) { return a->at < b->at; });
  std::string text;
  size_t copied = 0;
  for (const PlantedFact* fact : order) {
    const size_t at = std::min(fact->at, haystack.size());
    text += haystack.substr(copied, at - copied);
    text += fact->fact.statement;
    copied = at;
  }
  return text += haystack.substr(copied);
}

size_t word_start(std::string_view text, size_t at) {
  constexpr size_t kLookBack = 256;
  if (at >= text.size()) return text.size();
  const size_t blank = text.find_last_of(" \t\r\n", at);
  return blank == std::string_view::npos || at - blank > kLookBack ? at : blank;
}

}  // namespace fasa
