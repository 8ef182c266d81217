// Options that had another name in earlier versions. Old names are refused, not read.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace fasa {

struct RenamedKey {
  std::string_view before;
  std::string_view now;
};

std::span<const RenamedKey> renamed_keys();

// " (renamed to low_bit_tokens)" where `given` is an earlier name, written as a key, a flag or a
// variable; the new name is written in the same way. "" for any other name.
std::string renamed_hint(std::string_view given);

}  // namespace fasa
