// Finds the library of a code address: libraries of others have allocations that must not fail
// (destructors that allocate), so heap faults exclude them.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

namespace fasa::testing {

// The shared objects of oneTBB, toml++, hwloc and oneDNN, and this program's instances of
// nlohmann's templates. Built from the program's own symbols; the constructor allocates.
class LibraryCode {
 public:
  LibraryCode();
  bool has(const void* address) const;

 private:
  void add_shared_objects();
  void add_symbols(uintptr_t base);
  std::vector<std::pair<uintptr_t, uintptr_t>> ranges_;  // [begin, end), ascending
};

}  // namespace fasa::testing
