// The name that somebody who mistyped one most likely meant.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace fasa {

// " (nearest: fac_tokens)", or "" where nothing is near: more than a third of the letters differ,
// at least two of them.
std::string nearest_hint(std::string_view given, std::span<const std::string> names);

}  // namespace fasa
