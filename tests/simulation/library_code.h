// Whose code an address is: a library that is not ours may have allocations of its own that must
// not fail (destructors that allocate), so faults of the heap leave them out.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

namespace fasa::testing {

// The shared objects of oneTBB, toml++, hwloc and oneDNN, and what this program has of nlohmann's
// templates. Made from the program's own symbols; allocates.
class LibraryCode {
 public:
  LibraryCode();
  bool has(const void* address) const;

 private:
  void add_shared_objects();
  void add_symbols(uintptr_t base);
  std::vector<std::pair<uintptr_t, uintptr_t>> ranges_;  // [begin, end), rising
};

}  // namespace fasa::testing
