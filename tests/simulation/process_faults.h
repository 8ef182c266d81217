// What fails outside of devices: operator new, threads that start, files, mappings. The program
// that links process_faults.cc has these calls replaced; they fail on the thread of an armed scope
// alone, by the scope's injector.
#pragma once

#include <cstdint>

#include "tests/support/fault_injector.h"

namespace fasa::testing {

// On this thread, while it lives, the process's calls ask this injector. One at a time.
class ProcessFaults {
 public:
  explicit ProcessFaults(FaultInjector& injector);
  ProcessFaults(const ProcessFaults&) = delete;  // of one thread
  ProcessFaults& operator=(const ProcessFaults&) = delete;
  ~ProcessFaults();
};

// Blocks that operator new gave and operator delete has not taken back, of the whole process.
int64_t live_heap_blocks();

}  // namespace fasa::testing
