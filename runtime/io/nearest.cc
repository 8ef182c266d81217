#include "runtime/io/nearest.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cstdint>
#include <numeric>
#include <set>
#include <utility>
#include <vector>

namespace fasa {
namespace {

// Levenshtein distance.
size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 0; i < a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i + 1;
    for (size_t j = 0; j < b.size(); ++j) {
      const size_t replaced = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replaced, row[j] + 1, diagonal + 1});
    }
  }
  return row.back();
}

constexpr size_t kLongest = 64;  // longest name compared; keeps untrusted input cheap

std::string lower(std::string_view text) {
  std::string lowered(text);
  std::transform(lowered.begin(), lowered.end(), lowered.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return lowered;
}

// The words between dashes, underlines and dots.
std::set<std::string> words_of(std::string_view name) {
  std::set<std::string> words;
  constexpr std::string_view kBetween = "-_.";
  while (!name.empty()) {
    const size_t end = std::min(name.find_first_of(kBetween), name.size());
    if (end > 0) words.emplace(name.substr(0, end));
    name.remove_prefix(std::min(end + 1, name.size()));
  }
  return words;
}

// The name whose words are all in `given` and are the most of them; else the only one that has all
// of `given`'s words; null: none.
const std::string* by_words(std::string_view given, std::span<const std::string> names) {
  const std::set<std::string> wanted = words_of(given);
  const auto within = [](const std::set<std::string>& part, const std::set<std::string>& whole) {
    return !part.empty() && std::includes(whole.begin(), whole.end(), part.begin(), part.end());
  };
  const std::string* best = nullptr;
  const std::string* wider = nullptr;
  size_t most = 0, count = 0;
  for (const std::string& name : names) {
    const std::set<std::string> words = words_of(name);
    if (within(words, wanted) && words.size() > most) {
      best = &name;
      most = words.size();
    }
    if (within(wanted, words)) {
      wider = &name;
      ++count;
    }
  }
  if (best != nullptr) return best;
  return count == 1 ? wider : nullptr;
}

}  // namespace

std::vector<std::string> nearest_names(std::string_view given, std::span<const std::string> names,
                                       size_t most) {
  const std::string wanted = lower(given.substr(0, kLongest));
  std::vector<std::pair<size_t, size_t>> ranked;  // distance, index
  for (size_t i = 0; i < names.size(); ++i) {
    const std::string name = lower(names[i]);
    const bool begins_so = !wanted.empty() && name.substr(0, wanted.size()) == wanted;
    ranked.emplace_back(begins_so ? 0 : edit_distance(wanted, name), i);
  }
  const size_t count = std::min(most, ranked.size());
  std::partial_sort(ranked.begin(), ranked.begin() + static_cast<int64_t>(count), ranked.end());
  std::vector<std::string> nearest;
  for (size_t i = 0; i < count; ++i) nearest.push_back(names[ranked[i].second]);
  return nearest;
}

std::string nearest_hint(std::string_view given, std::span<const std::string> names) {
  if (given.size() > kLongest) return "";
  const std::string* best = nullptr;
  size_t least = std::max<size_t>(2, given.size() / 3) + 1;
  for (const std::string& name : names) {
    const size_t distance = edit_distance(given, name);
    if (distance < least) {
      least = distance;
      best = &name;
    }
  }
  if (best == nullptr) best = by_words(given, names);
  return best == nullptr ? "" : fmt::format(" (nearest: {})", *best);
}

}  // namespace fasa
