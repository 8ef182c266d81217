// A line of a terminal with editing keys and history (libedit).
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace fasa {

class LineEditor {
 public:
  LineEditor();
  ~LineEditor();
  LineEditor(const LineEditor&) = delete;  // the terminal's state
  LineEditor& operator=(const LineEditor&) = delete;

  // The line without its newline; nullopt at the end of the input. `interrupted` is set, and the
  // line is "", if a signal discarded it.
  std::optional<std::string> next(std::string_view prompt, bool* interrupted);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace fasa
