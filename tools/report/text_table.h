// Tables in text: columns as wide as their cells; a table wider than the terminal continues below,
// with its first columns again.
#pragma once

#include <string>
#include <vector>

namespace fasa {

class TextTable {
 public:
  // A title may have several lines. The first `names` columns are names: left-aligned, and repeated
  // where the table continues; the others are right-aligned.
  explicit TextTable(std::vector<std::string> titles, size_t names = 1);

  void add(std::vector<std::string> cells);  // as many as there are titles
  // Lines of at most `columns` characters, if the names and one column fit.
  std::string text(int columns) const;
  std::string text() const;  // as wide as the terminal

 private:
  using Row = std::vector<std::string>;
  size_t width_of(size_t column) const;
  std::string part(size_t first, size_t last) const;  // the names and columns [first, last)

  size_t names_;
  std::vector<Row> rows_;
  size_t title_lines_ = 0;  // the first rows
};

}  // namespace fasa
