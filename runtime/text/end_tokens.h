// Spellings of tokens that end an answer. Many published models name only some of their ends by id.
#pragma once

#include <functional>
#include <span>
#include <string_view>

namespace fasa::text {

// Known spellings, among them those of padding and separators for filling in the middle.
std::span<const std::string_view> end_spellings();

// Whether a token with one of these spellings ends an answer in a vocabulary that has the other
// tokens for which `has` is true.
bool ends_answer(std::string_view spelling, const std::function<bool(std::string_view)>& has);

}  // namespace fasa::text
