#include "runtime/nearest.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <vector>

namespace fasa {
namespace {

// Levenshtein's distance.
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

}  // namespace

std::string nearest_hint(std::string_view given, std::span<const std::string> names) {
  constexpr size_t kLongest = 64;  // of any name; keeps hostile input cheap
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
  return best == nullptr ? "" : fmt::format(" (nearest: {})", *best);
}

}  // namespace fasa
