// Texts of /proc and /sys.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace fasa {

// The whole file; "" if it cannot be read.
std::string proc_text(const std::string& file);
// The number that a text begins with, after blanks.
std::optional<uint64_t> proc_number(std::string_view text);
// The number of a line "NAME number".
std::optional<uint64_t> proc_field(const std::string& text, const std::string& name);

}  // namespace fasa
