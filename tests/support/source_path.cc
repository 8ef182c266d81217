#include "tests/support/source_path.h"

#include <cstdlib>

namespace fasa {

// The only translation unit that contains a path of the machine: all others are the same in every
// clone, so the compiler cache can share their objects.
std::string source_path(std::string_view path) {
  const char* const elsewhere = std::getenv("FASA_TEST_DATA");
  return std::string(elsewhere != nullptr ? elsewhere : FASA_SOURCE_DIR) + "/" + std::string(path);
}

}  // namespace fasa
