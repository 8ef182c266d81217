// Names files that people give in place of a model's.
#pragma once

#include <cstddef>
#include <span>
#include <string>

namespace fasa {

// What a file with these first bytes is, if it is one of a few known kinds, and what to do: "a Git
// LFS pointer, ...". Empty for other files.
std::string foreign_file(std::span<const std::byte> bytes);

}  // namespace fasa
