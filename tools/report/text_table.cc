#include "tools/report/text_table.h"

#include <fmt/format.h>

#include <algorithm>

#include "runtime/base/utf8.h"
#include "tools/flags/help_text.h"

namespace fasa {

TextTable::TextTable(std::vector<std::string> titles, size_t names) : names_(names) {
  for (const std::string& title : titles) {
    const auto lines = static_cast<size_t>(std::count(title.begin(), title.end(), '\n')) + 1;
    title_lines_ = std::max(title_lines_, lines);
  }
  rows_.assign(title_lines_, Row(titles.size()));
  for (size_t column = 0; column < titles.size(); ++column) {
    std::string rest = titles[column];
    for (size_t line = 0; line < title_lines_; ++line) {
      const size_t end = std::min(rest.find('\n'), rest.size());
      rows_[line][column] = rest.substr(0, end);
      rest.erase(0, end + 1);
    }
  }
}

void TextTable::add(std::vector<std::string> cells) { rows_.push_back(std::move(cells)); }

size_t TextTable::width_of(size_t column) const {
  size_t width = 0;
  for (const Row& row : rows_) {
    width = std::max(width, static_cast<size_t>(count_characters(row[column])));
  }
  return width;
}

std::string TextTable::part(size_t first, size_t last) const {
  std::string out;
  for (const Row& row : rows_) {
    std::string line;
    const auto cell = [&](size_t column) {
      if (column > 0) line += "  ";
      const size_t width = width_of(column);
      line += column < names_ ? fmt::format("{:<{}}", row[column], width)
                              : fmt::format("{:>{}}", row[column], width);
    };
    for (size_t column = 0; column < names_; ++column) cell(column);
    for (size_t column = first; column < last; ++column) cell(column);
    out += line.substr(0, line.find_last_not_of(' ') + 1) + '\n';
  }
  return out;
}

std::string TextTable::text(int columns) const {
  const size_t all = rows_.front().size();
  size_t name_width = 0;
  for (size_t column = 0; column < names_; ++column) name_width += width_of(column) + 2;
  std::string out;
  for (size_t first = names_; first < all;) {
    size_t last = first;
    size_t width = name_width;
    while (last < all) {
      const size_t more = width + width_of(last) + (last == first ? 0 : 2);
      if (last > first && more > static_cast<size_t>(columns)) break;
      width = more;
      ++last;
    }
    if (!out.empty()) out += '\n';
    out += part(first, last);
    first = last;
  }
  return out;
}

std::string TextTable::text() const { return text(terminal_columns()); }

}  // namespace fasa
