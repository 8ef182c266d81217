// Owns a sequence of a runtime and frees it on destruction.
#pragma once

#include <fmt/format.h>

#include "runtime/api/sequences/runtime.h"
#include "runtime/base/error.h"
#include "runtime/base/log.h"

namespace fasa {

class OwnedSequence {
 public:
  explicit OwnedSequence(Runtime& runtime) : OwnedSequence(runtime, runtime.create()) {}
  // Takes ownership of `id`, for example of a fork.
  OwnedSequence(Runtime& runtime, SequenceId id) : runtime_(runtime), id_(id) {}
  ~OwnedSequence() {
    if (released_) return;
    try {
      runtime_.free(id_);
    } catch (const std::exception& error) {
      warn(error.what());
    }
  }
  OwnedSequence(const OwnedSequence&) = delete;  // frees once
  OwnedSequence& operator=(const OwnedSequence&) = delete;
  SequenceId id() const { return id_; }
  Runtime& runtime() const { return runtime_; }
  // Passes ownership to the caller, which must free the sequence.
  SequenceId release() {
    released_ = true;
    return id_;
  }

 private:
  static void warn(const char* why) noexcept {
    try {
      log_warning(fmt::format("freeing a sequence failed: {}", why));
    } catch (const std::exception&) {
      // No memory for the message.
    }
  }
  Runtime& runtime_;
  SequenceId id_;
  bool released_ = false;
};

}  // namespace fasa
