// A conversation's terminal: lines in, and Ctrl-C as a wish to stop.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace fasa {

// While it lives, Ctrl-C (SIGINT) ends no program but is asked for. One at a time.
class Interrupts {
 public:
  Interrupts();
  ~Interrupts();
  Interrupts(const Interrupts&) = delete;  // the handler is the process's
  Interrupts& operator=(const Interrupts&) = delete;

  // Whether one came since the last forget().
  static bool came();
  static void forget();
};

// Lines of standard input, from a terminal, a pipe or a file.
class LineReader {
 public:
  bool is_terminal() const;
  // The next line without its end; nothing where the input ends. Ctrl-C throws the line that is
  // being typed away and begins another, with the prompt again; prompts go to terminals alone.
  std::optional<std::string> next(std::string_view prompt);

 private:
  bool read_more(std::string_view prompt);

  std::string read_;  // and not taken yet
  bool ended_ = false;
};

}  // namespace fasa
