// Text that arrives in pieces, broken between words at a terminal's width.
#pragma once

#include <string>
#include <string_view>

namespace fasa {

class WordWrap {
 public:
  // 0 columns: text stays as it is.
  explicit WordWrap(int columns) : columns_(columns) {}

  // What to print for this piece. A word is held back until it ends.
  std::string add(std::string_view text);
  // The word that is held back. The next text begins a line.
  std::string finish();

 private:
  std::string take_word();

  int columns_;
  int at_ = 0;  // characters of the line so far, without those of blanks_
  std::string word_;
  std::string blanks_;  // before the word
};

}  // namespace fasa
