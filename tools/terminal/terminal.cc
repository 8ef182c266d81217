#include "tools/terminal/terminal.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <iostream>
#include <string_view>

#include "tools/terminal/line_editor.h"

namespace fasa {
namespace {

volatile std::sig_atomic_t interrupted = 0;
struct sigaction former;

volatile std::sig_atomic_t announced = 0;

void note_interrupt(int) {
  constexpr std::string_view kStopping = "\r\033[K(stopping after this step)\n";
  const int error = errno;
  if (announced != 0 && interrupted == 0) {
    [[maybe_unused]] const auto written =
        ::write(STDERR_FILENO, kStopping.data(), kStopping.size());
  }
  interrupted = 1;
  errno = error;
}

}  // namespace

Interrupts::Interrupts() {
  struct sigaction action {};
  action.sa_handler = note_interrupt;  // no SA_RESTART: Ctrl-C makes a blocking read return
  sigemptyset(&action.sa_mask);
  sigaction(SIGINT, &action, &former);
  interrupted = 0;
}

Interrupts::~Interrupts() { sigaction(SIGINT, &former, nullptr); }

bool Interrupts::came() { return interrupted != 0; }
void Interrupts::forget() { interrupted = 0; }
void Interrupts::announce(bool on) { announced = on && isatty(STDERR_FILENO) == 1 ? 1 : 0; }

LineReader::LineReader() {
  if (isatty(STDIN_FILENO) == 1) editor_ = std::make_unique<LineEditor>();
}

LineReader::~LineReader() = default;

std::optional<std::string> LineReader::edited(std::string_view prompt) {
  std::string whole;
  while (true) {
    bool was_interrupted = false;
    auto line = editor_->next(whole.empty() ? prompt : "... ", &was_interrupted);
    if (was_interrupted) {
      Interrupts::forget();
      whole.clear();
      fmt::print("\n(end the input with Ctrl-D, or /quit, to leave)\n");
      continue;
    }
    if (!line) return std::nullopt;
    if (!line->ends_with('\\')) return whole + *line;
    line->back() = '\n';
    whole += *line;
  }
}

std::optional<std::string> LineReader::next(std::string_view prompt) {
  std::fflush(stdout);
  if (editor_) return edited(prompt);
  std::string line;
  if (!std::getline(std::cin, line)) return std::nullopt;
  if (line.ends_with('\r')) line.pop_back();
  return line;
}

}  // namespace fasa
