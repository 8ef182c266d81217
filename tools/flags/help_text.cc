#include "tools/flags/help_text.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include "tools/flags/option_list.h"
#include "tools/terminal/word_wrap.h"

namespace fasa {
namespace {

constexpr int kIndent = 2;
constexpr int kTextColumn = 28;

// Name and text of an option or command; a long name has a line of its own.
std::string entry(const std::string& name, const std::string& text, int columns) {
  std::string out = std::string(kIndent, ' ') + name;
  const int used = static_cast<int>(out.size());
  if (used + 2 > kTextColumn) {
    out += "\n" + std::string(kTextColumn, ' ');
  } else {
    out += std::string(static_cast<size_t>(kTextColumn - used), ' ');
  }
  return out + wrapped(text, columns, kTextColumn, kTextColumn) + "\n";
}

std::string option_name(const ListedOption& option) {
  std::string name = fmt::format("{}", fmt::join(option.names, ", "));
  if (!option.positional && !option.type.empty()) name += " " + option.type;
  return name;
}

std::string usage(const CLI::App& app, const std::vector<OptionGroup>& groups) {
  std::string path = app.get_name();
  for (const CLI::App* up = app.get_parent(); up != nullptr; up = up->get_parent()) {
    path = up->get_name() + " " + path;
  }
  std::string line = "Usage: " + path;
  if (!subcommands(app).empty()) return line + " COMMAND [OPTIONS]\n";
  for (const OptionGroup& group : groups) {
    for (const ListedOption& option : group.options) {
      if (option.positional) line += " " + option.names.front();
    }
  }
  return line + " [OPTIONS]\n";
}

std::string options_text(const std::vector<OptionGroup>& groups, bool all, int columns) {
  std::string out;
  size_t config = 0;
  for (const OptionGroup& group : groups) {
    // The option for the config file is in another group.
    const size_t shown = group.of_config() && !all ? 0 : group.options.size();
    config += group.options.size() - shown;
    if (shown == 0) continue;
    out += fmt::format("\n{}:\n", group.name);
    for (const ListedOption& option : group.options) {
      out += entry(option_name(option), option.text, columns);
    }
  }
  if (config > 0) {
    out += wrapped(fmt::format("\nConfig options, {} more flags that a config file may hold too: "
                               "--help-all, docs/configuration.md",
                               config),
                   columns, 0, 0) +
           "\n";
  }
  return out;
}

}  // namespace

int terminal_columns() {
  constexpr int kMin = 40;
  constexpr int kMax = 120;
  for (const int file : {STDOUT_FILENO, STDERR_FILENO}) {
    winsize size{};
    if (isatty(file) == 1 && ioctl(file, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) {
      return std::clamp<int>(size.ws_col, kMin, kMax);
    }
  }
  const char* const columns = std::getenv("COLUMNS");
  const int given = columns == nullptr ? 0 : std::atoi(columns);
  return given > 0 ? std::clamp(given, kMin, kMax) : 100;
}

std::string wrapped(std::string_view text, int columns, int indent, int used) {
  WordWrap wrap(columns, indent, used);
  const std::string out = wrap.add(text);
  return out + wrap.finish();
}

std::string paragraph(std::string_view text, int indent) {
  return wrapped(text, terminal_columns(), indent, 0) + '\n';
}

std::string folded(std::string_view text) {
  const int columns = terminal_columns();
  std::string out;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    const size_t begin = std::min(line.find_first_not_of(' '), line.size());
    size_t value = line.find("  ", begin);
    if (value != std::string_view::npos) value = line.find_first_not_of(' ', value);
    const bool named = value != std::string_view::npos && value < kTextColumn;
    const size_t indent = named ? value : begin + 2;
    const size_t head = named ? value : begin;
    out += line.substr(0, head);
    out += wrapped(line.substr(head), columns, static_cast<int>(indent), static_cast<int>(head));
    if (end < text.size()) out += '\n';
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return out;
}

std::string HelpFormatter::make_help(const CLI::App* app, std::string,
                                     CLI::AppFormatMode mode) const {
  const int columns = terminal_columns();
  const auto groups = option_groups(*app);
  std::string out = wrapped(app->get_description(), columns, 0, 0) + "\n\n" + usage(*app, groups);
  const auto commands = subcommands(*app);
  if (!commands.empty()) out += "\nCommands:\n";
  for (const CLI::App* command : commands) {
    out += entry(command->get_name(), command->get_description(), columns);
  }
  out += options_text(groups, mode == CLI::AppFormatMode::All, columns);
  const auto examples = examples_of(app->get_name());
  if (!examples.empty()) out += "\nExamples:\n";
  for (const std::string& line : examples) {
    out += fmt::format("  {}\n", wrapped(line, columns - 2, 6, 2));
  }
  if (!commands.empty()) out += "\nfasa help COMMAND describes one of them.\n";
  return out;
}

}  // namespace fasa
