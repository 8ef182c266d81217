// Recursion depth of the evaluator.
#pragma once

#include <fmt/format.h>

#include "runtime/text/template/work.h"

namespace fasa::jinja {

// Counts one level during its lifetime. A level takes about half a kilobyte of stack.
class Frame {
 public:
  explicit Frame(int* frames) : frames_(frames) {
    constexpr int kMax = 1000;
    if (*frames_ >= kMax) {
      throw Failure(fmt::format("the template is nested more than {} levels deep", kMax));
    }
    ++*frames_;
  }
  ~Frame() { --*frames_; }
  Frame(const Frame&) = delete;  // counts once
  Frame& operator=(const Frame&) = delete;

 private:
  int* frames_;
};

}  // namespace fasa::jinja
