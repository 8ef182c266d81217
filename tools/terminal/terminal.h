// Terminal input of a conversation: lines, and Ctrl-C as a request to stop.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace fasa {

class LineEditor;  // tools/terminal/line_editor.h

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
  // While on, SIGINT writes at once to standard error that work stops after this step.
  static void announce(bool on);
};

// Lines of standard input: from a terminal with editing keys and history, else from a pipe or file.
class LineReader {
 public:
  LineReader();
  ~LineReader();
  LineReader(const LineReader&) = delete;  // reads a stream
  LineReader& operator=(const LineReader&) = delete;

  bool is_terminal() const { return editor_ != nullptr; }
  // The next line without its newline; nullopt at the end of the input. On terminals Ctrl-C
  // discards the line being typed, and a line that ends with a backslash goes on in the next.
  std::optional<std::string> next(std::string_view prompt);

 private:
  std::optional<std::string> edited(std::string_view prompt);

  std::unique_ptr<LineEditor> editor_;  // null: no terminal
};

}  // namespace fasa
