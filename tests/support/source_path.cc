#include "tests/support/source_path.h"

#include <cstdlib>

namespace fasa {

// The one unit that knows a folder of the machine: every other is the same in every clone, and so
// is what the compiler's cache keeps of it.
std::string source_path(std::string_view path) {
  const char* const elsewhere = std::getenv("FASA_TEST_DATA");
  return std::string(elsewhere != nullptr ? elsewhere : FASA_SOURCE_DIR) + "/" + std::string(path);
}

}  // namespace fasa
