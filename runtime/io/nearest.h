// Suggests names for a mistyped one.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace fasa {

// Up to `most` of the names: those that begin with `given` first, then by edit distance, ignoring
// case. Never empty: meant for lists to choose from.
std::vector<std::string> nearest_names(std::string_view given, std::span<const std::string> names,
                                       size_t most);

// " (nearest: fac_tokens)", or "" if no name is near. Near: at most a third of the letters differ,
// or two letters; else all words of the name are in `given` (prefetch_depth: depth), or it alone
// has all words of `given`.
std::string nearest_hint(std::string_view given, std::span<const std::string> names);

}  // namespace fasa
