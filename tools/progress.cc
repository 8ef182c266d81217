#include "tools/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

namespace fasa {

Progress::Progress(std::string label)
    : label_(std::move(label)), terminal_(isatty(STDERR_FILENO) == 1) {}

Progress::~Progress() { clear(); }

void Progress::update(int64_t done, int64_t total) {
  if (!terminal_) return;
  constexpr int64_t kWidth = 30;
  const int64_t filled = total > 0 ? std::clamp<int64_t>(done * kWidth / total, 0, kWidth) : 0;
  fmt::print(stderr, "\r\033[K{} [{:<30}] {} of {}", label_,
             std::string(static_cast<size_t>(filled), '#'), done, total);
  std::fflush(stderr);
  shown_ = true;
}

void Progress::say(const std::string& text) {
  if (!terminal_) return;
  fmt::print(stderr, "\r\033[K{}: {}", label_, text);
  std::fflush(stderr);
  shown_ = true;
}

void Progress::clear() {
  if (!shown_) return;
  fmt::print(stderr, "\r\033[K");
  std::fflush(stderr);
  shown_ = false;
}

}  // namespace fasa
