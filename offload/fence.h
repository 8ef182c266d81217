// When memory changes hands: which work used it last, and how to wait for that work.
#pragma once

#include <compare>
#include <cstdint>

namespace fasa {

// Stands for the work of a step on all its streams, for the control work before it, and for all
// earlier work. 0: no work.
struct Fence {
  uint64_t number = 0;
  auto operator<=>(const Fence&) const = default;
};

// What owners of memory ask before it leaves them.
class Fences {
 public:
  virtual ~Fences() = default;
  // Work that is enqueued for the next step after this comes after that work. Enqueues only.
  virtual void order(Fence fence) = 0;
  // Blocks the host until that work has finished or failed. Free if it is known to have passed.
  virtual void wait(Fence fence) = 0;
  // The fence of all work enqueued so far.
  virtual Fence latest() const = 0;
};

}  // namespace fasa
