// The text of --help: wrapped to the terminal, config options apart (--help-all), examples last.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <string_view>

namespace fasa {

// Columns of the terminal on standard output or error; else those of the variable COLUMNS; else
// 100. From 40 to 120.
int terminal_columns();

// `text` in lines of at most `columns` characters, each after the first behind `indent` blanks.
// `used`: characters of the first line that are taken. Breaks at blanks; longer words stay whole.
std::string wrapped(std::string_view text, int columns, int indent, int used);

// `text` wrapped to the terminal, and a line end.
std::string paragraph(std::string_view text, int indent = 0);

// `text` with each line that is too long for the terminal wrapped. A line "name    value" goes on
// below its value, another behind two more blanks than it began with.
std::string folded(std::string_view text);

class HelpFormatter final : public CLI::FormatterBase {
 public:
  std::string make_help(const CLI::App* app, std::string name,
                        CLI::AppFormatMode mode) const override;
};

}  // namespace fasa
