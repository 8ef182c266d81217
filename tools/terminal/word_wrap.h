// Text that arrives in pieces, broken between words at a terminal's width.
#pragma once

#include <string>
#include <string_view>

namespace fasa {

class WordWrap {
 public:
  // 0 columns: text stays as it is. `indent`: of the lines that it begins; `used`: characters of
  // the first line so far.
  explicit WordWrap(int columns, int indent = 0, int used = 0)
      : columns_(columns), indent_(indent), at_(used) {}

  // What to print for this piece. A word is held back until it ends.
  std::string add(std::string_view text);
  // The word that is held back. The next text begins a line.
  std::string finish();

 private:
  std::string take_word();
  void begin_line();

  int columns_;
  int indent_;
  int at_;                  // characters of the line so far, without those of blanks_
  bool has_words_ = false;  // the line
  std::string word_;
  std::string blanks_;  // before the word
};

}  // namespace fasa
