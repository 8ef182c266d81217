// Terminal input of a conversation: lines, and Ctrl-C as a request to stop.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace fasa {

// During its lifetime, Ctrl-C (SIGINT) does not end the program; came() reports it. One instance at
// a time.
class Interrupts {
 public:
  Interrupts();
  ~Interrupts();
  Interrupts(const Interrupts&) = delete;  // the handler is the process's
  Interrupts& operator=(const Interrupts&) = delete;

  // Whether SIGINT arrived since the last forget().
  static bool came();
  static void forget();
};

// Lines of standard input, from a terminal, a pipe or a file.
class LineReader {
 public:
  bool is_terminal() const;
  // The next line without its newline; nullopt at the end of the input. Ctrl-C discards the line
  // being typed and prints the prompt again. Prompts are printed on terminals only.
  std::optional<std::string> next(std::string_view prompt);

 private:
  bool read_more(std::string_view prompt);

  std::string read_;  // bytes read but not returned yet
  bool ended_ = false;
};

}  // namespace fasa
