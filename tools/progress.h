// A line of progress on standard error; nothing where that is no terminal.
#pragma once

#include <cstdint>
#include <string>

namespace fasa {

class Progress {
 public:
  explicit Progress(std::string label);
  Progress(const Progress&) = delete;  // one line on one terminal
  ~Progress();                         // clears the line

  void update(int64_t done, int64_t total);
  void say(const std::string& text);  // in place of the bar
  void clear();

 private:
  std::string label_;
  bool terminal_;
  bool shown_ = false;
};

}  // namespace fasa
