// Options with another name in earlier versions. An old name is an error that names the new one.
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

// " (renamed to low_bit_tokens)" if `given` is an old name, written as key, flag or variable; the
// new name is written in the same form. "" for any other name.
std::string renamed_hint(std::string_view given);

}  // namespace fasa
