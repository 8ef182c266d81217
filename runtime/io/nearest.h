// The name that was most likely meant by a mistyped one.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace fasa {

// Up to `most` of the names, those that begin with what was given first, then those with the fewest
// letters to change, capitals being no difference. Never empty: for lists to choose
// from.
std::vector<std::string> nearest_names(std::string_view given, std::span<const std::string> names,
                                       size_t most);

// " (nearest: fac_tokens)", or "" where nothing is near: more than a third of the letters differ,
// at least two of them.
std::string nearest_hint(std::string_view given, std::span<const std::string> names);

}  // namespace fasa
