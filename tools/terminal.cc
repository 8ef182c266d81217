#include "tools/terminal.h"

#include <fmt/format.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <iostream>

#include "tools/line_editor.h"

namespace fasa {
namespace {

volatile std::sig_atomic_t interrupted = 0;
struct sigaction former;

void note_interrupt(int) { interrupted = 1; }

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

LineReader::LineReader() {
  if (isatty(STDIN_FILENO) == 1) editor_ = std::make_unique<LineEditor>();
}

LineReader::~LineReader() = default;

std::optional<std::string> LineReader::edited(std::string_view prompt) {
  std::string whole;
  while (true) {
    bool interrupted = false;
    auto line = editor_->next(whole.empty() ? prompt : "... ", &interrupted);
    if (interrupted) {
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
