// Whether a place in Markdown is within backticks.
#pragma once

#include <string_view>

namespace fasa::text {

// Code spans end with their line; fences are lines that begin with three backticks.
class QuotedText {
 public:
  void push(std::string_view text) {
    for (const char byte : text) push(byte);
  }
  bool open() const { return fence_ || odd_ticks_; }

 private:
  void push(char byte) {
    if (byte == '\n') {
      odd_ticks_ = line_begun_ = false;
      run_ = 0;
    } else if (byte == '`') {
      odd_ticks_ = !odd_ticks_;
      if (!line_begun_ && ++run_ == 3) {
        fence_ = !fence_;
        odd_ticks_ = false;
        line_begun_ = true;
      }
    } else if (byte != ' ' || run_ > 0) {
      line_begun_ = true;
    }
  }

  bool fence_ = false;
  bool odd_ticks_ = false;   // on this line
  bool line_begun_ = false;  // with something else than backticks
  int run_ = 0;              // of backticks at the line's beginning
};

}  // namespace fasa::text
