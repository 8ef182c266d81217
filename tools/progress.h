// A progress line on standard error; prints nothing if that is not a terminal.
#pragma once

#include <cstdint>
#include <string>

namespace fasa {

class Progress {
 public:
  explicit Progress(std::string label);
  Progress(const Progress&) = delete;  // owns the terminal's line
  ~Progress();                         // clears the line

  void update(int64_t done, int64_t total);
  void say(const std::string& text);  // in place of the bar
  void clear();

 private:
  void print(const std::string& line);

  std::string label_;
  bool terminal_;
  bool shown_ = false;
};

}  // namespace fasa
