// A progress line on standard error; prints nothing if that is not a terminal.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace fasa {

class Progress {
 public:
  explicit Progress(std::string label);
  Progress(const Progress&) = delete;  // owns the terminal's line
  ~Progress();                         // clears the line

  // With the time left, at the rate since the first line.
  void update(int64_t done, int64_t total);
  void say(const std::string& text);  // in place of the bar
  void clear();

 private:
  std::string left_words(int64_t done, int64_t total) const;
  void print(const std::string& line);

  std::string label_;
  bool terminal_;
  bool shown_ = false;
  std::chrono::steady_clock::time_point begin_ = {};  // of the first line
};

}  // namespace fasa
