// Remembers the first device failure. What it left behind cannot be trusted, so every later call
// throws that error again.
#pragma once

#include <new>
#include <optional>
#include <string>

#include "runtime/base/error.h"

namespace fasa {

class PagedGuard {
 public:
  // Throws DeviceError if an earlier call failed.
  void require_usable() const {
    if (failure_) throw DeviceError(*failure_);
    if (half_done_) {
      throw DeviceError(
          "the process ran out of host memory while work was enqueued; the contents of the pages "
          "are lost; create a new runtime");
    }
  }
  // From here on the call changes state: running out of host memory would leave it half done.
  void begin() { begun_ = true; }

  template <typename Work>
  void run(const Work& work) {
    begun_ = false;
    try {
      work();
    } catch (const DeviceError& error) {
      half_done_ = true;
      if (!failure_) failure_ = error.what();
      throw;
    } catch (const std::bad_alloc&) {
      half_done_ |= begun_;
      require_usable();
      throw;
    }
  }

 private:
  std::optional<std::string> failure_;
  bool begun_ = false;
  bool half_done_ = false;
};

}  // namespace fasa
