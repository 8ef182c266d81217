// Faults outside of devices: operator new, thread starts, files, mappings. A program that links
// process_faults.cc has these calls replaced; they fail only on the thread of an armed scope, by
// the scope's injector.
#pragma once

#include <cstdint>

#include "tests/support/fault_injector.h"

namespace fasa::testing {

// While it lives, the process's calls on this thread consult this injector. One at a time.
class ProcessFaults {
 public:
  explicit ProcessFaults(FaultInjector& injector);
  ProcessFaults(const ProcessFaults&) = delete;  // belongs to one thread
  ProcessFaults& operator=(const ProcessFaults&) = delete;
  ~ProcessFaults();
};

// Blocks from operator new that operator delete has not freed, in the whole process.
int64_t live_heap_blocks();

}  // namespace fasa::testing
