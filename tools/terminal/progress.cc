#include "tools/terminal/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "tools/flags/help_text.h"

namespace fasa {

Progress::Progress(std::string label)
    : label_(std::move(label)), terminal_(isatty(STDERR_FILENO) == 1) {}

Progress::~Progress() { clear(); }

void Progress::update(int64_t done, int64_t total) {
  if (!terminal_) return;
  constexpr int64_t kWidth = 30;
  const int64_t filled = total > 0 ? std::clamp<int64_t>(done * kWidth / total, 0, kWidth) : 0;
  print(fmt::format("{} [{:<30}] {} of {}{}", label_, std::string(static_cast<size_t>(filled), '#'),
                    done, total, left_words(done, total)));
}

// Once two seconds tell the rate.
std::string Progress::left_words(int64_t done, int64_t total) const {
  if (!shown_ || done <= 0 || done >= total) return "";
  const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - begin_;
  if (passed.count() < 2) return "";
  const double left =
      passed.count() * static_cast<double>(total - done) / static_cast<double>(done);
  return fmt::format(", {:.0f} s left", std::ceil(left));
}

void Progress::say(const std::string& text) {
  if (terminal_) print(fmt::format("{}: {}", label_, text));
}

// A line as wide as the terminal would go on below, where no later text replaces it.
void Progress::print(const std::string& line) {
  if (!shown_) begin_ = std::chrono::steady_clock::now();
  const auto most = static_cast<size_t>(terminal_columns() - 1);
  fmt::print(stderr, "\r\033[K{}", line.substr(0, most));
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
