#include "tools/terminal.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>

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

bool LineReader::is_terminal() const { return isatty(STDIN_FILENO) == 1; }

// False at the end of the input.
bool LineReader::read_more(std::string_view prompt) {
  char bytes[4096];
  while (true) {
    const ssize_t count = ::read(STDIN_FILENO, bytes, sizeof bytes);
    if (count > 0) {
      read_.append(bytes, static_cast<size_t>(count));
      return true;
    }
    if (count == 0 || errno != EINTR) return false;
    Interrupts::forget();
    read_.clear();
    if (is_terminal()) {
      fmt::print("\n(end the input with Ctrl-D to leave)\n{}", prompt);
      std::fflush(stdout);
    }
  }
}

std::optional<std::string> LineReader::next(std::string_view prompt) {
  if (is_terminal()) fmt::print("{}", prompt);
  std::fflush(stdout);
  size_t end = read_.find('\n');
  while (end == std::string::npos && !ended_) {
    ended_ = !read_more(prompt);
    end = read_.find('\n');
  }
  if (end == std::string::npos) {
    if (read_.empty()) return std::nullopt;
    end = read_.size();
    read_ += '\n';
  }
  std::string line = read_.substr(0, end);
  read_.erase(0, end + 1);
  if (line.ends_with('\r')) line.pop_back();
  return line;
}

}  // namespace fasa
